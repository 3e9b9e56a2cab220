"""What is in the wheel and in the source distribution: all that runs, and all that the
tests read.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def files(name: str) -> set[str]:
    """A file, or all files below a folder, from the project's root."""
    paths = [ROOT / name, *(ROOT / name).rglob("*")]
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of a source distribution that was built and unpacked."""
    builder = pytest.importorskip("hatchling.builders.sdist").SdistBuilder(str(ROOT))
    folder = tmp_path_factory.mktemp("sdist")
    (built,) = builder.build(directory=str(folder), versions=["standard"])
    with tarfile.open(built) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (found,) = (folder / "unpacked").iterdir()
    return found


def test_the_built_sdist_holds_what_tests_and_lessons_read(unpacked):
    held = {
        path.relative_to(unpacked).as_posix()
        for path in unpacked.rglob("*")
        if path.is_file()
    }
    named = [
        "environment.yml",
        "constraints.txt",
        "Makefile",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
    ]
    names = [
        "rmlab",
        "data",
        "tests",
        "docs",
        "notebooks",
        "figures",
        ".ci",
        "performance",
        *named,
    ]
    kept = subprocess.run(
        ["git", "ls-files", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = set(kept.stdout.splitlines()) or {
        file for name in names for file in files(name)
    }
    assert wanted >= set(named)
    assert any(re.fullmatch(r"performance/\w+\.py", name) for name in wanted)
    assert {name for name in wanted if (ROOT / name).is_file()} - held == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    if not os.access(ROOT, os.W_OK):
        pytest.skip("hatchling writes beside the project")
    (built,) = builder.build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    return built


def test_the_built_wheel_has_the_code_its_styles_and_scripts_and_the_data(wheel):
    held = {
        name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name
    }
    code = {name for name in files("rmlab") if not name.startswith("rmlab/data")}
    assert held == code | {f"rmlab/{name}" for name in files("data")} | {
        "rmlab_command.py"
    }
    assert {Path(name).suffix for name in code} <= {
        ".py",
        ".css",
        ".js",
        ".html",
        ".txt",
        ".typed",
        "",
    }
    needed = (
        "mini/chat_filtered.json",
        "published/rm_bench_leaderboard.csv",
        "reward_bench_items.csv",
    )
    assert held >= {f"rmlab/data/{name}" for name in needed}


def brought(requirements: Iterable[str], found: set[str]) -> set[str]:
    """Names of the packages that requirements bring, with all that these require in
    turn.
    """
    for requirement in map(Requirement, requirements):
        name = requirement.name.lower()
        if name in found or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        try:
            there = distribution(name)
        except (
            PackageNotFoundError
        ):  # an alternative that this environment does without
            continue
        found.add(name)
        brought(there.requires or (), found)
    return found


ALONE = """
import sys
sys.path.insert(0, {site!r})
from importlib.util import find_spec
assert not any(map(find_spec, ("torch", "IPython", "httpx", "ipywidgets")))

import rmlab
assert rmlab.__file__.startswith({site!r}), rmlab.__file__
scores = rmlab.score(rmlab.load("mini"), ["longest", "random"])
assert len(rmlab.leaderboard(scores)) == 2
ax = rmlab.plot_matrix(rmlab.matrix(scores.query("model == 'random'")))
rmlab.save_figure(ax.figure, {out!r} + "/heatmap.png")
rmlab.write_report(scores, {out!r} + "/report.html")
rmlab.write_scores(scores, {out!r} + "/scores.csv")
again = rmlab.read_scores({out!r} + "/scores.csv")
assert again["score"].tolist() == scores["score"].tolist()
for make in (rmlab.classifier, rmlab.implicit_reward, rmlab.pairwise):
    try:
        make("no/such-model")
    except ImportError as error:
        assert "pip install 'reward-model-lab[score]'" in str(error), error
    else:
        raise AssertionError(make)
from rmlab_command import main
sys.argv = ["rmlab", *{words!r}]
main()
"""

COMMANDS = {
    "score": ["score", "mini", "no/such-model"],
    "judge": ["judge", "mini", "no/such-model", "--url", "http://127.0.0.1:9"],
}


def test_the_wheel_works_with_nothing_but_what_it_requires(wheel, tmp_path):
    """A process that sees the unpacked wheel, the packages that it requires, and no
    other.
    """
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in brought(project["dependencies"], set()):
        there = distribution(name)
        for top in {file.parts[0] for file in there.files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(there.locate_file(top))).resolve())
    for extra, words in COMMANDS.items():
        code = ALONE.format(site=str(site), out=str(tmp_path), words=words)
        alone = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(
            alone, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.splitlines()[-1].endswith(
            f"pip install 'reward-model-lab[{extra}]'"
        ), done.stderr
        assert "Traceback" not in done.stderr
    assert {"heatmap.png", "report.html", "scores.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
