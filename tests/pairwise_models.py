"""Tiny pairwise models with random weights, in the layouts in which the real ones are
published.
"""

import json

from safetensors.torch import load_file, save_file
from torch import nn

from rmlab import toy

HIDDEN = 32
MARKS = ["<|source|>", "<|candidate1|>", "<|candidate2|>"]


def save_pairrm(folder):
    """PairRM-hf's layout: backbone under pretrained_model, two layers under head_layer,
    markers in the tokenizer.
    """
    words = toy.tokenizer(chat_template=None)
    words.add_special_tokens({"additional_special_tokens": MARKS})
    toy.save_model(
        folder, "deberta-v2", task="backbone", words=words, position_biased_input=False
    )
    weights = {
        f"pretrained_model.{key}": t
        for key, t in load_file(folder / "model.safetensors").items()
    }
    layers = (
        nn.Dropout(0.1),
        nn.Linear(2 * HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(HIDDEN, 3),
    )
    head = nn.Sequential(*layers).eval()
    save_file(
        weights | {f"head_layer.{k}": t for k, t in head.state_dict().items()},
        folder / "model.safetensors",
    )
    config = json.loads((folder / "config.json").read_text())
    ids = words.convert_tokens_to_ids(MARKS)
    settings = dict(
        zip(
            ["source_prefix_id", "cand1_prefix_id", "cand2_prefix_id"], ids, strict=True
        )
    )
    config |= settings | {
        "architectures": ["DebertaV2PairRM"],
        "n_tasks": 3,
        "drop_out": 0.1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder, head, words


def save(kind, folder):
    """The folder of a new model of this kind: pairrm or letters."""
    if kind == "letters":
        return toy.save_model(folder, task="causal")
    return save_pairrm(folder)[0]
