"""The project's own files: packages agree, imports are declared and light, versions are
one.
"""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rmlab

ROOT = Path(__file__).parents[1]
LAZY = (
    "torch",
    "transformers",
    "statsmodels",
    "seaborn",
    "ipywidgets",
    "matplotlib",
    "markdown_it",
    "huggingface_hub",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
)
EXTRAS = ("score", "adapters", "judge", "triton", "ray", "lab")
BRING = {
    "IPython": "ipywidgets",
    "traitlets": "ipywidgets",
    "tokenizers": "transformers",
    "tornado": "jupyterlab",
}
BRING |= {"yaml": "huggingface_hub"}  # packages that come with a declared one
TOOLS = {
    "jupyterlab",
    "nbval",
    "accelerate",
    "ipywidgets",
}  # programs, what transformers loads large models with, and what lesson 10 imports
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(*extras: str) -> set[str]:
    """Requirements of the package and of extras, the package itself aside."""
    lines = PROJECT["dependencies"] + [
        line for extra in extras for line in PROJECT["optional-dependencies"][extra]
    ]
    return {line for line in lines if not line.startswith("reward-model-lab")}


def imported() -> set[str]:
    """Packages of others that rmlab imports anywhere, also within functions."""
    names = set()
    for path in (ROOT / "rmlab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"rmlab", "_typeshed"}


def test_every_import_is_declared_and_every_declared_package_is_imported():
    names = {
        re.split(r"[><=\[ ]", line)[0].lower().replace("-", "_")
        for line in requirements(*EXTRAS)
    }
    declared = names - {"markdown_it_py"} | {"markdown_it"}
    assert {BRING.get(name, name) for name in imported()} - declared == set()
    assert declared - {*map(str.lower, imported())} - TOOLS == set()


def test_one_version():
    assert "version" not in PROJECT, "rmlab/version.py has it"
    assert f"## [{rmlab.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {rmlab.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{rmlab.__version__}}}" in (ROOT / "README.md").read_text()


def test_no_file_tells_anyone_to_install_the_other_project():
    """`rmlab` on the package index is a stranger's: the distribution is called
    reward-model-lab.
    """
    stranger = re.compile(
        r"\b(pip3?|uv|conda)\b[^\n`&;|]* (install|add)\b[^\n`&;|]*[ "
        r"'\"]rmlab(?![\w./-])|\brmlab\[\w"
    )
    assert stranger.search("pip install -q 'rmlab[lab]'")
    assert stranger.search("pip install rmlab")
    folders = ("rmlab", "docs", "notebooks", "performance")
    paths = [
        *ROOT.glob("*"),
        *(path for folder in folders for path in (ROOT / folder).rglob("*")),
    ]
    texts = [
        path
        for path in paths
        if path.suffix in (".py", ".md", ".ipynb", ".toml", ".yml", ".txt")
    ]
    assert [path for path in texts if stranger.search(path.read_text("utf-8"))] == []


STATE = """
import matplotlib, pandas, sys
from IPython.core.interactiveshell import InteractiveShell

def state():
    formatters = InteractiveShell.instance().display_formatter.formatters.values()
    printers = [
        {**f.type_printers, **f.deferred_printers, **f.singleton_printers}
        for f in formatters
    ]
    options = pandas.describe_option(_print_desc=False)
    return options, matplotlib.rcParams.copy(), printers

before = state()
import rmlab
assert state() == before
"""
LIGHT = f"import rmlab, sys; assert not {{*{LAZY!r}}} & {{*sys.modules}}"


@pytest.mark.parametrize("code", [STATE, LIGHT])
def test_import_is_light_and_changes_nothing_in_pandas_matplotlib_and_ipython(code):
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
