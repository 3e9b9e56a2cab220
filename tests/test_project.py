"""The project's own files: packages agree, imports are light, names are what they should be."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"pytorch": "torch", "playwright-python": "playwright"}
LAZY = ("torch", "transformers", "statsmodels", "seaborn", "ipywidgets", "matplotlib", "markdown_it", "huggingface_hub")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements() -> set[str]:
    """Everything pip would ask for with the dev extra, the package itself aside."""
    extras = project()["optional-dependencies"]
    asked = project()["dependencies"] + extras["score"] + extras["lab"] + extras["dev"]
    return {r for r in asked if not r.startswith("rmlab")}


def test_conda_and_pip_ask_for_the_same_packages():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {r for r in listed if isinstance(r, str)} - {"pip"}
    renamed = {re.sub(r"^[\w-]+", lambda m: CONDA_NAMES.get(m[0], m[0]), r) for r in conda}
    assert renamed == requirements() | {f"python{project()['requires-python']}"}


def test_every_requirement_is_pinned_once():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    names = [re.split(r"==", pin)[0].lower().replace("_", "-") for pin in pins]
    assert len(names) == len(set(names))
    assert all("==" in pin and "+" not in pin for pin in pins)
    asked = {re.split(r"[><=\[ ]", r)[0].lower().replace("_", "-") for r in requirements()}
    assert asked <= set(names)
    assert "torch==2.13.0" in pins


def imported() -> set[str]:
    """Packages of others that the package imports anywhere, also within functions."""
    names = set()
    for path in (ROOT / "rmlab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"rmlab"}


# What comes with a package that is asked for, and what is used only where somebody installed it.
BROUGHT = {"IPython": "ipywidgets", "traitlets": "ipywidgets", "tokenizers": "transformers", "jinja2": "torch"}
OPTIONAL = {"itables"}
MODULES = {"markdown-it-py": "markdown_it"}


def test_score_and_lab_install_all_that_the_package_imports():
    extras = project()["optional-dependencies"]
    asked = {re.split(r"[><=\[ ]", r)[0] for r in project()["dependencies"] + extras["score"] + extras["lab"]}
    modules = {MODULES.get(name, name.replace("-", "_")) for name in asked}
    assert imported() - OPTIONAL - modules - set(BROUGHT) == set()
    assert {BROUGHT[name] for name in imported() & set(BROUGHT)} <= modules
    assert "pyarrow" in imported() & modules, "RewardBench 1 and 2 are Parquet files"


def test_import_is_light():
    code = f"import rmlab, sys; print([m for m in {LAZY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_public_names_exist_and_are_documented():
    import rmlab

    for name in rmlab.__all__:
        thing = getattr(rmlab, name)
        assert isinstance(thing, str) or thing.__doc__, name
    assert len(rmlab.__all__) == len(set(rmlab.__all__))


def test_version_is_told_once():
    import rmlab

    assert rmlab.__version__ == project()["version"]
    assert f"## {rmlab.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {rmlab.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    "name", ["LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "environment.yml"]
)
def test_the_files_a_newcomer_looks_for_are_there(name):
    assert (ROOT / name).stat().st_size > 100


def test_every_name_of_the_design_is_where_it_says():
    import rmlab

    homes = {
        "metrics": "best_of best_of_curve ties_score ties_detail ensemble rm_bench reward_bench reward_bench_2",
        "stats": "compare_all calibration flips item_difficulty margins power equivalence sensitivity",
        "bias": "style_preference style_controlled length_controlled debias debias_change",
        "papers": "published reproduce agreement audit_leaderboard results",
        "styles": "features audit restyle restyle_pairs",
        "widgets": "explore playground token_rewards",
        "report": "to_markdown to_latex to_csv show styled",
        "tables": "check_responses check_scores check_pairs",
        "io": "export_every_eval_ever",
        "inference": "plan",
        "toy": "tokenizer save_model",
    }
    for home, names in homes.items():
        for name in names.split():
            assert callable(getattr(getattr(rmlab, home), name)), f"rmlab.{home}.{name}"
