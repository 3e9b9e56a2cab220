"""Damaged files by every reader: how many are refused, how many accepted, and that nothing else happens.

python benchmarks/fuzz.py [--files 20000] [--seed 0] [--out benchmarks/results/fuzz.csv]
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mutated_files import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fuzz.csv")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    found = run(asked.files, Path(tempfile.mkdtemp()), asked.seed)
    wrong = found[~found["verdict"].isin(["refused", "accepted"])]
    print(wrong.groupby(["file", "verdict"]).agg(n=("path", "size"), first=("path", "first")).to_string())
    table = found["verdict"].where(~found.index.isin(wrong.index), "wrong").groupby(found["file"]).value_counts()
    table = table.unstack(fill_value=0).reindex(columns=["refused", "accepted", "wrong"], fill_value=0)
    table.to_csv(asked.out)
    print(table.sum().to_string())
    sys.exit(bool(len(wrong)))


if __name__ == "__main__":
    main()
