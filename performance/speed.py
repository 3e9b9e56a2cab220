"""Every speed that rmlab claims, by the clock, on one thread and on all: two tables,
written into README.md.

For a machine without other work; about twelve minutes on two cores. On one thread two
models are timed at once, each on a core of its own. Slow ways run once and the others
three times, long prompts up to 3,500 tokens five times; ratios are of medians. Of batch
1 only two of six texts are timed where a prompt has 3,500 tokens or more, and its time
is multiplied: these texts have nothing to do with one another. There sorted batches
hold one or two texts, and are left out.

    python performance/speed.py            # --quick: tiny models, to see that it runs
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import long_prompts
import numpy as np
import pandas as pd
import scoring
from scoring import WAYS, Worker

from rmlab import toy
from rmlab.scorers import classifier

HERE = Path(__file__).parent
ALL = os.cpu_count() or 1
CLAIMS = [
    [("llama", "32m", 12), ("qwen3", "32m", 12)],
    [("modernbert", "32m", 12), ("llama", "250m", 2)],
]
"""Architecture, size and prompts of the models that are timed at once."""

ROUNDS = {WAYS[0]: 1, WAYS[1]: 1, WAYS[4]: 3, "rmlab": 3, "product": 3}
PARTS = ("claims", "long")
LENGTHS = {
    "llama": [20, 400, 3500, 6000, 12000, 16000],
    "modernbert": [20, 400, 3500, 6000, 7700],
}  # it takes 8,192
LONG, FEW = 3500, 2
LONG_WAYS = ["batch 1", "sorted batches", "rmlab"]
LONG_MODELS = [["llama", "qwen3"], ["modernbert"]]

Model = tuple[str, str, int]
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=HERE.parents[1] / "shared" / "data" / "rm-bench"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--models",
        nargs="*",
        help="of long prompts; rows that are not measured keep what they had",
    )
    parser.add_argument("--lengths", type=int, nargs="*", help="of long prompts")
    parser.add_argument("--size", default="32m", help="of long prompts")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if "claims" in options.parts:
        keep("claims", claims(options))
    if "long" in options.parts:
        found, before = long_table(options), HERE / "results" / "speed_long_prompts.csv"
        if options.models or options.lengths:
            both = pd.concat([pd.read_csv(before), found], ignore_index=True)
            found = both.drop_duplicates(["model", "prompt", "way"], keep="last")
        keep(
            "long prompts",
            found.sort_values(["model", "prompt", "way"], key=_in_order, kind="stable"),
        )


def claims(options: argparse.Namespace) -> pd.DataFrame:
    """A row for each model and way: times rmlab and share of the matrix peak, on one
    thread and on all.
    """
    everything = scoring.load(options.data, 0)[0]
    words = toy.tokenizer(
        [*everything["prompt"].unique(), *everything["response"]], vocab_size=16384
    )
    rows = []
    for pair in (
        [[("llama", "tiny", 4), ("modernbert", "tiny", 4)]] if options.quick else CLAIMS
    ):
        with (
            tempfile.TemporaryDirectory() as place,
            _workers_of(pair, options, words, Path(place)) as workers,
        ):
            for model, (one, every) in zip(
                pair, side_by_side(workers, _rounds), strict=True
            ):
                rows += list(
                    _claim(model, options, everything, Path(place), one, every)
                )
        print(markdown(pd.DataFrame(rows)), flush=True)
    return pd.DataFrame(rows)


@contextmanager
def _workers_of(
    pair: list[Model], options: argparse.Namespace, words: object, place: Path
) -> Iterator[list[dict[str, Worker]]]:
    made = []
    for number, model in enumerate(pair):
        own = _options(model, options)
        folder = scoring.build(place / f"{model[0]}-{model[1]}", own, words)
        ways = [
            way
            for way in ROUNDS
            if way != "product" and (model[1] != "250m" or way in (WAYS[4], "rmlab"))
        ]
        made.append({way: Worker(scoring.make, way, own, folder) for way in ways})
        made[number]["product"] = Worker(scoring.product, own)
    yield made
    for worker in (worker for workers in made for worker in workers.values()):
        worker.close()


def _options(model: Model, options: argparse.Namespace) -> argparse.Namespace:
    named = dict(zip(("architecture", "size", "prompts"), model, strict=True))
    return argparse.Namespace(
        **named, dtype="float32", device="cpu", budget=None, data=options.data
    )


def _rounds(workers: dict[str, Worker], threads: int, core: int | None) -> Times:
    times: Times = {way: [] for way in workers}
    for number in range(max(ROUNDS.values())):
        for way, worker in workers.items():
            if number < ROUNDS[way]:
                times[way].append(worker.run(threads, core=core)["wall"])
    return times


def side_by_side(
    workers: list[dict[str, Worker]],
    measure: Callable[[dict[str, Worker], int, int | None], Times],
) -> list[tuple[Times, Times]]:
    """Times of each model on one thread, the models at once on a core each; then on all
    threads, one by one.
    """
    with ThreadPoolExecutor(len(workers)) as pool:
        ones = list(
            pool.map(
                lambda number: measure(workers[number], 1, number % ALL),
                range(len(workers)),
            )
        )
    return list(zip(ones, [measure(own, ALL, None) for own in workers], strict=True))


def _claim(
    model: Model,
    options: argparse.Namespace,
    everything: pd.DataFrame,
    place: Path,
    one: Times,
    every: Times,
) -> Iterator[dict[str, object]]:
    architecture, size, prompts = model
    folder = place / f"{architecture}-{size}"
    weights = sum(
        np.prod(shape) for name, shape in scoring.shapes(folder) if "embed" not in name
    )
    scorer = classifier(folder, device="cpu")
    whole = scoring.tokens_of(scorer, everything)
    some = scoring.tokens_of(scorer, scoring.load(options.data, prompts)[1])
    for way in (way for way in one if way != "product"):
        row: dict[str, object] = {
            "model": f"{architecture} {size}",
            "way": way,
            "tokens": whole[way] / whole["rmlab"],
        }
        for name, times in (("1 thread", one), ("all threads", every)):
            taken, peak = median(times[way]), scoring.PEAK / min(times["product"])
            row[f"s, {name}"] = taken
            row[name] = taken / median(times["rmlab"])
            row[f"share of peak, {name}"] = 2 * weights * some[way] / taken / peak
        yield row | {
            "claim": min(float(str(row["1 thread"])), float(str(row["all threads"])))
        }


def long_table(options: argparse.Namespace) -> pd.DataFrame:
    """A row for each model, prompt length and way: tokens, and times rmlab on one
    thread and on all.
    """
    size = "tiny" if options.quick else options.size
    parts = []
    for models in [options.models] if options.models else LONG_MODELS:
        lengths = (
            [20, 400, 700]
            if options.quick
            else LENGTHS.get(models[0], LENGTHS["llama"])
        )
        parts.append(
            _long_of(
                models,
                [n for n in lengths if not options.lengths or n in options.lengths],
                size,
            )
        )
    return pd.concat(parts, ignore_index=True)


def _in_order(column: pd.Series) -> pd.Series:
    """Models and ways in the order of the table, lengths as they are."""
    names = ["llama 32m", "qwen3 32m", "modernbert 32m", "llama 250m", *LONG_WAYS]
    return (
        column
        if column.name == "prompt"
        else column.map({name: place for place, name in enumerate(names)})
    )


def _long_of(models: list[str], lengths: list[int], size: str) -> pd.DataFrame:
    workers = [
        {
            way: Worker(long_prompts.make, way, model, size, "float32")
            for way in LONG_WAYS
        }
        for model in models
    ]
    rows = []
    for length in lengths:

        def measure(
            own: dict[str, Worker], threads: int, core: int | None, length: int = length
        ) -> Times:
            return _long_rounds(own, length, threads, core)

        for model, (one, every) in zip(
            models, side_by_side(workers, measure), strict=True
        ):
            tokens = long_prompts.tokens_of(length, model)
            for way in (way for way in LONG_WAYS if one[way]):
                row = {
                    "model": f"{model} {size}",
                    "prompt": length,
                    "way": way,
                    "tokens": tokens[way],
                }
                row["tokens, times rmlab's"] = tokens[way] / tokens["rmlab"]
                row["rounds"] = len(one[way])
                for name, times in (("1 thread", one), ("all threads", every)):
                    row[f"s, {name}"] = median(times[way])
                    row[name] = median(times[way]) / median(times["rmlab"])
                rows.append(row)
            print(pd.DataFrame(rows[-3:]).round(2).to_string(index=False), flush=True)
    for worker in (worker for own in workers for worker in own.values()):
        worker.close()
    return pd.DataFrame(rows)


def _long_rounds(
    workers: dict[str, Worker], length: int, threads: int, core: int | None
) -> Times:
    """Five rounds, one of the longest prompts; batch 1 takes a few texts of long
    ones.
    """
    times: Times = {way: [] for way in workers}
    texts = long_prompts.texts_of(length)[0]
    for _ in range(5 if length <= LONG else 1):
        for way, worker in workers.items():
            if length < LONG or way == "rmlab":
                times[way].append(worker.run(threads, length, core=core)["wall"])
            elif way == "batch 1":
                share = sum(map(len, texts)) / sum(map(len, texts[:FEW]))
                times[way].append(
                    share * worker.run(threads, length, FEW, core=core)["wall"]
                )
    return times


def keep(name: str, table: pd.DataFrame) -> None:
    """The table as CSV, and in README.md between its two marks."""
    table.round(3).to_csv(
        HERE / "results" / f"speed_{name.replace(' ', '_')}.csv", index=False
    )
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = (HERE / "README.md").read_text()
    before, rest = text.split(first)
    shown = table.loc[
        :, [not column.startswith("s, ") or name != "claims" for column in table]
    ]
    (HERE / "README.md").write_text(
        f"{before}{first}\n{markdown(shown)}\n{last}{rest.split(last)[1]}"
    )
    print(markdown(shown))


def markdown(table: pd.DataFrame) -> str:
    """A table as README.md has them."""
    lines = [
        table.columns.tolist(),
        ["---"] * table.shape[1],
        *table.map(_cell).to_numpy().tolist(),
    ]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _cell(value: object) -> str:
    return (
        f"{value:.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


if __name__ == "__main__":
    main()
