"""What a real language model says of a benchmark's answers: SmolLM2-135M-Instruct, sums and means of log-probabilities.

    python benchmarks/smollm2.py mini
    python benchmarks/smollm2.py rm-bench --path FOLDER --store scores-smollm2

One thread; run it again and it resumes. Writes data/results/smollm2_<benchmark>.csv.gz, scores without texts:
`sum` is `rmlab.implicit_reward(folder, mode="sum")`, and over `tokens`, the length of the answer, it is `mode="mean"`.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch

import rmlab
from rmlab.scorers.gguf import smollm2
from rmlab.scorers.language_model import answer

FOLDER = Path(__file__).parents[1] / "data" / "results"
KEY = ["benchmark", "domain", "id", "label", "slot", "subset", "style"]


def table(responses, store):
    """Rows of `responses` without their texts, with the sum and the mean of the log-probabilities of the answer."""
    scorer = rmlab.implicit_reward(smollm2(), mode="sum", device="cpu", dtype="float32")
    scores = rmlab.score(responses, scorer, store=store)
    prepared = scorer.prepare(responses["prompt"].tolist(), responses["response"].tolist())
    tokens = np.array([len(answer(prepared, text)[1]) for text in range(len(responses))])
    assert scores["id"].tolist() == responses["id"].tolist(), "score keeps the order of the rows"
    return responses[KEY].assign(sum=scores["score"].round(4).to_numpy(), tokens=tokens)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--store", type=Path, default=Path("artefacts/smollm2"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = table(rmlab.load(given.benchmark, path=given.path), given.store)
    target = FOLDER / f"smollm2_{given.benchmark.replace('-', '_')}.csv.gz"
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(found.to_csv(index=False).encode())
    size = target.stat().st_size / 1000
    print(f"{len(found)} answers, {found['tokens'].sum():,} tokens in {target.name}, {size:.0f} kB")
