"""The recipe of docs/how_to/beside_training.md on two processes, for torchrun:

python -m torch.distributed.run --nproc-per-node 2 tests/sharded.py FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import rmlab


def main(folder):
    """Print "equal" where sharded scores are those of the whole model."""
    page = Path(__file__).parents[1] / "docs" / "how_to" / "beside_training.md"
    section = page.read_text().partition("## A model that is spread")[2]
    recipe = {"rmlab": rmlab}
    exec(section.split("```python\n")[1].partition("```")[0], recipe)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    dist.init_process_group("gloo")
    models = []
    for _ in range(2):
        models.append(AutoModelForSequenceClassification.from_pretrained(folder))
        with torch.no_grad():
            for parameter in models[-1].parameters():
                parameter.add_(0.01)
    sharded, whole = models
    mesh = init_device_mesh("cpu", (2,))
    for module in (*sharded.model.layers, sharded):
        fully_shard(module, mesh=mesh)
    sharded(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()

    responses = rmlab.load("mini").head(12)
    scores = recipe["score_sharded"](sharded, tokenizer, responses)
    if dist.get_rank() == 0:
        expected = rmlab.score(responses, rmlab.classifier(whole.eval(), tokenizer))
        assert (scores["score"] == expected["score"]).all()
        print("equal")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
