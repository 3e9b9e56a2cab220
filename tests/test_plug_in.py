"""A benchmark from another package: one file, from load to leaderboard, without a
change to rmlab.
"""

import json
import subprocess
import sys
import textwrap

PLUG_IN = '''
"""Haiku: one right and one wrong poem to a prompt, two seasons that count one and three."""

import pandas as pd

from rmlab.benchmarks import Benchmark, Layout
from rmlab.estimation.weights import weighted_parts
from rmlab.tables import check_responses


def read(files):
    rows = [
        {"benchmark": "haiku", "domain": row["season"], "id": row["id"], "label": label, "slot": 0,
         "prompt": row["prompt"], "response": row[label]}
        for _, content in files for row in content for label in ("chosen", "rejected")
    ]
    return check_responses(pd.DataFrame(rows))


def make_parts(items, options):
    weight = {"summer": 1.0, "winter": 3.0 if options["winter"] == "heavy" else 1.0}
    return weighted_parts(items, items.cells["domain"].tolist(), weight, label="benchmark")


HAIKU = Benchmark(
    name="haiku",
    title="Haiku",
    subsets={"summer": "summer", "winter": "winter"},
    columns=("summer", "winter"),
    options={"winter": ("heavy", "light")},
    layout=Layout(read=read),
    make_parts=make_parts,
)
'''

USE = """
import rmlab

responses = rmlab.load("haiku", path="poems.json")
scores = rmlab.score(responses, [rmlab.baselines.longest, lambda prompts, texts: [float(t == "right") for t in texts]])
summary = rmlab.summary(scores).set_index("model")
light = rmlab.summary(scores, winter="light").set_index("model")
board = rmlab.leaderboard(scores, responses=responses)
ranks = rmlab.rank(scores)
difference = rmlab.compare(scores, *summary.index)["difference"].item()
print({
    "columns": list(summary.columns[:3]),
    "longest": [float(x) for x in summary.loc["longest"][["summer", "winter", "overall"]]],
    "light": float(light.loc["longest", "overall"]),
    "average": light["average"].iloc[0],
    "rows": len(board),
    "rank": ranks["rank"].dropna().tolist(),
    "same": bool((board.set_index("model")["overall"][summary.index] == summary["overall"]).all()),
    "difference": bool(difference == summary["overall"].iloc[0] - summary["overall"].iloc[1]),
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
            "prompt": "Write.",
            "chosen": "right",
            "rejected": wrong,
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
        "rows": 6,
        "rank": [1],
        "same": True,
        "difference": True,
    }
