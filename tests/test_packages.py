"""What is in the wheel and in the source distribution: all that runs, and all that the tests read."""

import fnmatch
import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
JUNK = {"__pycache__"}


def files(folder: str) -> set[str]:
    return {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / folder).rglob("*")
        if p.is_file() and not JUNK & {*p.parts} and p.suffix != ".pyc"
    }


def in_sdist(name: str) -> bool:
    patterns = BUILD["sdist"]["include"]
    return any(name == p or name.startswith(f"{p}/") or fnmatch.fnmatch(name, p) for p in patterns)


def test_the_wheel_has_the_code_its_styles_and_scripts_and_the_data():
    wheel = BUILD["wheel"]
    assert wheel["packages"] == ["rmlab"]
    assert wheel["force-include"] == {"data": "rmlab/data"}
    kinds = {Path(name).suffix for name in files("rmlab")}
    assert kinds <= {".py", ".css", ".js", ".typed", ""}
    for needed in (
        "data/mini/chat_filtered.json",
        "data/published/rm_bench_leaderboard.csv",
        "data/reward_bench_tasks.csv",
    ):
        assert needed in files("data")


def test_the_sdist_has_every_file_that_a_test_reads():
    names = ("rmlab", "data", "tests", "docs", "notebooks")
    assert all(in_sdist(name) for folder in names for name in files(folder))
    named = ["environment.yml", "constraints.txt", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"]
    assert all(in_sdist(name) and (ROOT / name).is_file() for name in named)
    scripts = [name for name in files("benchmarks") if name.endswith(".py")]
    assert scripts
    assert all(map(in_sdist, scripts))


def test_the_built_wheel_holds_them(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    if not os.access(ROOT, os.W_OK):
        pytest.skip("hatchling writes beside the project")
    import zipfile

    (built,) = builder.build(directory=str(tmp_path), versions=["standard"])
    held = {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name}
    data = {f"rmlab/{name}" for name in files("data")}
    assert held == {name for name in files("rmlab") if not name.startswith("rmlab/data")} | data
