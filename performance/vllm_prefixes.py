"""rmlab beside vLLM's pooling, with and without its cache of beginnings: the same
model, the same token ids, float32, the same threads, rounds in turns.

vLLM runs in the environment that `make test-long` makes, its engine in a process of its
own. The cache is emptied before every round: within one round it holds what the texts
of the round share. Tokens are those that a way forwards, of the sample as vLLM counts
them, of all texts without a model: vLLM keeps whole blocks of a beginning, in a cache
that is large enough for all.

    python performance/vllm_prefixes.py                          # 32 M, 64 prompts x 6
    python performance/vllm_prefixes.py --size 250m --prompts 12
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import scoring

import rmlab
from rmlab import toy

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".venv" / "vllm" / "bin" / "python"
OURS, CACHED, PLAIN = "rmlab", "vLLM, prefix caching", "vLLM, without"
# Tokens of a block of vLLM's cache: on a CPU by default, and on a GPU.
BLOCKS = (128, 16)


class Engine:
    """vLLM with the model, in its own process: `run` is one round."""

    def __init__(self, folder: Path, texts: Path, threads: int, caches: bool) -> None:
        calm = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "OMP_NUM_THREADS": str(threads),
        }
        calm.pop("PYTHONPATH", None)
        given = [folder, texts, "cached" if caches else "plain"]
        command = [PYTHON, HERE / "vllm_engine.py", *given]
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=calm,
            start_new_session=True,
        )
        # Loaded, it writes a first line; then it sleeps.
        self._answer()
        self._signal(signal.SIGSTOP)

    def run(self) -> dict:
        """Seconds, scores, and how many tokens came from the cache."""
        self._signal(signal.SIGCONT)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = self._answer()
        self._signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait(60)

    def _answer(self) -> dict:
        # vLLM writes to the same place.
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError("vLLM ended")

    def _signal(self, number: int) -> None:
        """To all of its processes: idle ones go on looking for work."""
        os.killpg(self._process.pid, number)


def cached_tokens(sequences: list[np.ndarray], block: int) -> int:
    """Tokens of `sequences` whose whole blocks a text before had, as vLLM keeps them; a
    text's last token is always forwarded.
    """
    held = set()
    n_cached = 0
    for ids in sequences:
        stops = range(block, len(ids) + 1, block)
        hits = 0
        for stop in stops:
            beginning = ids[:stop].tobytes()
            if hits == stop - block and beginning in held and stop < len(ids):
                hits = stop
            held.add(beginning)
        n_cached += hits
    return n_cached


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", choices=("llama", "qwen3"), default="llama")
    parser.add_argument("--size", choices=scoring.SIZES, default="32m")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=scoring.DATA)
    options = parser.parse_args()
    options.dtype, options.device, options.budget = "float32", "cpu", None
    if not PYTHON.exists():
        parser.error("vLLM is not installed: make .venv/vllm/ready")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as place:
        table = compare(options, Path(place))
    name = f"vllm_prefixes_{options.architecture}_{options.size}.csv"
    table.round(4).to_csv(HERE / "results" / name, index=False)
    print(table.round(3).to_string(index=False))


def compare(options: argparse.Namespace, place: Path) -> pd.DataFrame:
    """A row for each way: tokens, seconds, and how far its scores are from rmlab's."""
    everything, sample = scoring.load(options.data, options.prompts)
    words = toy.tokenizer(
        [*everything["prompt"].unique(), *everything["response"]], vocab_size=16384
    )
    folder = scoring.build(place / "model", options, words)
    scorer = rmlab.classifier(folder)
    prepared = scorer.prepare(sample["prompt"].tolist(), sample["response"].tolist())
    texts = place / "ids.json"
    texts.write_text(json.dumps([ids.tolist() for ids in prepared.ids]))

    worker = scoring.Worker(scoring.make, OURS, options, folder)
    engines = {
        CACHED: Engine(folder, texts, options.threads, True),
        PLAIN: Engine(folder, texts, options.threads, False),
    }
    seconds = {name: [] for name in (OURS, *engines)}
    found = {}
    # The first round warms up.
    for number in range(options.rounds + 1):
        taken = {OURS: worker.run(options.threads)["wall"]}
        for name, engine in engines.items():
            found[name] = engine.run()
            taken[name] = found[name]["seconds"]
        print(number, {name: round(one, 2) for name, one in taken.items()}, flush=True)
        if number:
            for name, one in taken.items():
                seconds[name].append(one)
    worker.close()
    for engine in engines.values():
        engine.close()

    n_all = sum(len(ids) for ids in prepared.ids)
    some = scoring.tokens_of(scorer, sample)["rmlab"]
    tokens = {OURS: some}
    for name in engines:
        tokens[name] = n_all - found[name]["cached"]
    scores = scorer(sample["prompt"].tolist(), sample["response"].tolist())
    rows = []
    for name, taken in seconds.items():
        ratios = np.divide(taken, seconds[OURS])
        apart = 0.0
        if name in found:
            apart = np.abs(found[name]["scores"] - scores).max() / scores.std()
        rows.append(
            {
                "way": name,
                "tokens, sample": tokens[name],
                "tokens, times rmlab": tokens[name] / some,
                "seconds": statistics.median(taken),
                "times rmlab": statistics.median(ratios),
                "least": ratios.min(),
                "most": ratios.max(),
                "apart, sd": apart,
            }
        )
    print(all_tokens(scorer, everything).to_string(index=False), flush=True)
    return pd.DataFrame(rows)


def all_tokens(scorer: object, everything: pd.DataFrame) -> pd.DataFrame:
    """Tokens that each way forwards of all texts, computed without a model."""
    given = everything["prompt"].tolist(), everything["response"].tolist()
    ids = scorer.prepare(*given).ids
    n_all = sum(len(one) for one in ids)
    tokens = {OURS: scoring.tokens_of(scorer, everything)["rmlab"]}
    for block in BLOCKS:
        tokens[f"{CACHED}, blocks of {block}"] = n_all - cached_tokens(ids, block)
    tokens[PLAIN] = n_all
    table = pd.DataFrame({"way": tokens.keys(), "tokens, all": tokens.values()})
    table["times rmlab"] = (table["tokens, all"] / tokens[OURS]).round(3)
    return table


if __name__ == "__main__":
    main()
