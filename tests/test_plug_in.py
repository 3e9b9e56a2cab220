"""A benchmark from another package: one file, from load to leaderboard, without a
change to rmlab.
"""

import json
import subprocess
import sys
import textwrap

PLUG_IN = '''
"""Haiku: one right and one wrong poem to a prompt, two seasons that count one and
three.
"""

from rmlab.benchmarks import Benchmark, Layout


def read_row(row, file):
    texts = {"chosen": row["good"], "rejected": row["bad"]}
    yield {"id": row["id"], "subset": row["season"], "prompt": "Write."} | texts


def weigh_seasons(options):
    return {"summer": 1.0, "winter": 3.0 if options["winter"] == "heavy" else 1.0}


HAIKU = Benchmark(
    name="haiku",
    title="Haiku",
    subsets={"summer": "summer", "winter": "winter"},
    columns=("summer", "winter"),
    options={"winter": ("heavy", "light")},
    layout=Layout(read_row=read_row),
    weights=weigh_seasons,
)
'''

USE = """
import rmlab

responses = rmlab.load("haiku", path="poems.json")

def knows(prompts, texts):
    return [float(text == "right") for text in texts]

scores = rmlab.score(responses, [rmlab.baselines.longest, knows])
summary = rmlab.summary(scores).set_index("model")
overall = summary["overall"]
longest = summary.loc["longest"][["summer", "winter", "overall"]]
light = rmlab.summary(scores, winter="light").set_index("model")
board = rmlab.leaderboard(scores, responses=responses)
ranks = rmlab.rank(scores)
difference = rmlab.compare(scores, *summary.index)["difference"].item()
print({
    "columns": list(summary.columns[:3]),
    "longest": [float(x) for x in longest],
    "light": float(light.loc["longest", "overall"]),
    "average": light["average"].iloc[0],
    "rows": len(board),
    "rank": ranks["rank"].dropna().tolist(),
    "same": bool((board.set_index("model")["overall"][summary.index] == overall).all()),
    "difference": bool(difference == overall.iloc[0] - overall.iloc[1]),
})
"""


def test_a_benchmark_of_another_package_is_one_file(tmp_path):
    """The installed package is what pip would leave: a module and its metadata with the
    entry point.
    """
    (tmp_path / "haiku.py").write_text(PLUG_IN)
    metadata = tmp_path / "haiku-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: haiku\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[rmlab.benchmarks]\nhaiku = haiku:HAIKU\n"
    )
    poems = [
        {
            "id": str(i),
            "season": season,
            "good": "right",
            "bad": wrong,
        }
        for i, (season, wrong) in enumerate(
            [("summer", "no"), ("winter", "wrong wrong")] * 6
        )
    ]
    (tmp_path / "poems.json").write_text(json.dumps(poems))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{textwrap.dedent(USE)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = eval(done.stdout.strip().splitlines()[-1])
    assert said == {
        "columns": ["summer", "winter", "overall"],
        "longest": [1.0, 0.0, 0.25],
        "light": 0.5,
        "average": "benchmark, winter=light",
        "rows": 5,
        "rank": [1],
        "same": True,
        "difference": True,
    }


HEADS = '''
"""A head, and an entry point that is broken."""

import torch
from torch.nn.functional import linear

from rmlab.scorers.models.heads import Head


def make(weights, settings):
    return lambda states: 2 * linear(states[:, 0], weights["doubled_head.weight"])


DOUBLED = Head("doubled", "models of ours", ("doubled_head.weight",), make)
NOTHING = 7
'''

HEADS_USE = """
import json, logging
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModel

import rmlab
from rmlab.scorers.models.heads import choose

warnings = []
logging.getLogger("rmlab.plug_ins").addFilter(lambda r: warnings.append(r.getMessage()))
folder = rmlab.toy.save_model("backbone", "llama", task="backbone")
backbone = AutoModel.from_pretrained(folder)
weight = torch.randn(1, backbone.config.hidden_size)
weights = {f"model.{key}": value for key, value in backbone.state_dict().items()}
save_file(weights | {"doubled_head.weight": weight}, folder / "model.safetensors")
scorer = rmlab.classifier(folder)
prompts, answers = ["One?", "Two?"], ["Yes.", "No, not at all."]
found = scorer(prompts, answers)
encoded = scorer.prepare(prompts, answers)
alone = []
for ids in encoded.ids:
    with torch.no_grad():
        states = backbone(torch.tensor(ids[None].astype(int))).last_hidden_state
    alone.append(2 * float(states[0, -1] @ weight[0]))
print(json.dumps({
    "head": choose(["doubled_head.weight"], {}).name,
    "own": choose(["doubled_head.weight", "v_head.weight"], {}).name,
    "scores": bool(np.allclose(found, alone, atol=1e-5)),
    "left out": sorted(name for name in ("absent", "seven")
                       if any(repr(name) in text for text in warnings)),
}))
"""


def test_a_package_brings_a_head_by_name(tmp_path):
    """A broken entry point takes nothing down."""
    (tmp_path / "shout.py").write_text(HEADS, "utf-8")
    metadata = tmp_path / "shout-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shout\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[rmlab.heads]\ndoubled = shout:DOUBLED\nseven = shout:NOTHING\n"
        "absent = shout:absent\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{HEADS_USE}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        "head": "doubled",
        "own": "value",
        "scores": True,
        "left out": ["absent", "seven"],
    }
