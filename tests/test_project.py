"""The project's own files: packages agree, imports are declared and light, versions are one."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import rmlab

ROOT = Path(__file__).parents[1]
LAZY = ("torch", "transformers", "statsmodels", "seaborn", "ipywidgets", "matplotlib", "markdown_it", "huggingface_hub")
EXTRAS = ("score", "judge", "triton", "ray", "lab")
CONDA_NAMES = {"pytorch": "torch", "playwright-python": "playwright"}
MODULES = {"markdown-it-py": "markdown_it"}
DEPENDENCIES_OF = {
    "IPython": "ipywidgets",
    "traitlets": "ipywidgets",
    "tokenizers": "transformers",
    "yaml": "huggingface_hub",
    "tornado": "jupyterlab",
}
TOOLS = {"jupyterlab", "nbval", "accelerate"}  # programs, and what transformers loads large models with
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(*extras: str) -> set[str]:
    """Requirements of the package and of extras, the package itself aside."""
    lines = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    return {line for line in lines if not line.startswith("reward-model-lab")}


def package_names(lines: set[str]) -> set[str]:
    return {re.split(r"[><=\[ ]", line)[0].lower().replace("_", "-") for line in lines}


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


def test_conda_and_pip_ask_for_the_same_packages():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = {line for part in entries if isinstance(part, dict) for line in part["pip"] if not line.startswith("--")}
    conda = {line for line in entries if isinstance(line, str)} - {"pip"} | pip
    renamed = {re.sub(r"^[\w-]+", lambda match: CONDA_NAMES.get(match[0], match[0]), line) for line in conda}
    assert renamed == requirements(*EXTRAS, "dev") | {f"python{PROJECT['requires-python']}"}


def test_every_import_is_declared_and_every_declared_package_is_imported():
    declared = {MODULES.get(name, name.replace("-", "_")): name for name in package_names(requirements(*EXTRAS))}
    assert imported() - {*declared} - {*DEPENDENCIES_OF} == set()
    assert {DEPENDENCIES_OF[name] for name in imported() & {*DEPENDENCIES_OF}} <= {*declared}
    assert {*declared} - {*map(str.lower, imported())} - TOOLS == set()


def test_one_version():
    assert rmlab.__version__ == PROJECT["version"]
    assert f"## {rmlab.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {rmlab.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_no_file_tells_anyone_to_install_the_other_project():
    """`rmlab` on the package index is a stranger's: the distribution is called reward-model-lab."""
    stranger = re.compile(r"\b(pip3?|uv|conda)\b[^\n`&;|]* (install|add)\b[^\n`&;|]*[ '\"]rmlab(?![\w./-])|\brmlab\[\w")
    assert stranger.search("pip install -q 'rmlab[lab]'")
    assert stranger.search("pip install rmlab")
    folders = ("rmlab", "docs", "notebooks", "benchmarks")
    paths = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    texts = [path for path in paths if path.suffix in (".py", ".md", ".ipynb", ".toml", ".yml", ".txt")]
    assert [path for path in texts if stranger.search(path.read_text("utf-8"))] == []


STATE = """
import matplotlib, pandas
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()

def state():
    formatters = shell.display_formatter.formatters.values()
    printers = [{**f.type_printers, **f.deferred_printers, **f.singleton_printers} for f in formatters]
    return pandas.describe_option(_print_desc=False), matplotlib.rcParams.copy(), printers

before = state()
import rmlab
assert state() == before
"""


def run_python(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_import_is_light_and_changes_nothing_in_pandas_matplotlib_and_ipython():
    assert run_python(f"import rmlab, sys; print([m for m in {LAZY!r} if m in sys.modules])").strip() == "[]"
    run_python(STATE)
