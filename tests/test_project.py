"""The project's own files: packages agree, imports are light, public names are those of the design."""

import ast
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import yaml

import rmlab

ROOT = Path(__file__).parents[1]
LAZY = ("torch", "transformers", "statsmodels", "seaborn", "ipywidgets", "matplotlib", "markdown_it", "huggingface_hub")
EXTRAS = ("score", "judge", "triton", "ray", "lab")
CONDA_NAMES = {"pytorch": "torch", "playwright-python": "playwright"}
MODULES = {"markdown-it-py": "markdown_it", "mdit-py-plugins": "mdit_py_plugins"}
DEPENDENCIES_OF = {
    "IPython": "ipywidgets",
    "traitlets": "ipywidgets",
    "tokenizers": "transformers",
    "yaml": "huggingface_hub",
    "tornado": "jupyterlab",
}
TOOLS = {"jupyterlab", "nbval", "accelerate"}  # programs, and what transformers loads large models with


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(*extras: str) -> set[str]:
    """Requirements of the package and of extras, the package itself aside."""
    optional = project()["optional-dependencies"]
    listed = project()["dependencies"] + [line for extra in extras for line in optional[extra]]
    return {line for line in listed if not line.startswith("reward-model-lab")}


def package_names(lines: set[str]) -> set[str]:
    return {re.split(r"[><=\[ ]", line)[0].lower().replace("_", "-") for line in lines}


def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "rmlab").rglob("*.py")]


def imported() -> set[str]:
    """Packages of others that rmlab imports anywhere, also within functions."""
    names = set()
    for tree in trees():
        for node in ast.walk(tree):
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
    assert renamed == requirements(*EXTRAS, "dev") | {f"python{project()['requires-python']}"}


def test_every_requirement_is_pinned_once():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    names = [line.split("==")[0].lower().replace("_", "-") for line in lines]
    assert len(names) == len(set(names))
    assert all("==" in line and "+" not in line for line in lines)
    assert package_names(requirements(*EXTRAS, "dev")) <= set(names)


def test_every_import_is_declared_and_every_declared_package_is_imported():
    declared = {MODULES.get(name, name.replace("-", "_")): name for name in package_names(requirements(*EXTRAS))}
    assert imported() - {*declared} - {*DEPENDENCIES_OF} == set()
    assert {DEPENDENCIES_OF[name] for name in imported() & {*DEPENDENCIES_OF}} <= {*declared}
    assert {*declared} - {*map(str.lower, imported())} - TOOLS == set()


def test_import_is_light():
    code = f"import rmlab, sys; print([m for m in {LAZY!r} if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


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


def test_import_changes_nothing_in_pandas_matplotlib_and_ipython():
    finished = subprocess.run([sys.executable, "-c", STATE], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_one_version():
    assert rmlab.__version__ == project()["version"]
    assert f"## {rmlab.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {rmlab.__version__}" in (ROOT / "CITATION.cff").read_text()


# `rmlab` on the package index is another project: the distribution is called reward-model-lab.
STRANGER = re.compile(
    r"(\b(pip3?|uv|poetry|conda|mamba|pixi)\b[^\n`&;|]*\s(install|add)|\buvx|\bpipx (run|install))"
    r"\b[^\n`&;|]*[ '\"]rmlab(?![\w./-])|\brmlab\[[\w{,]"
)


def test_no_file_tells_anyone_to_install_the_other_project():
    for command in ("pip install rmlab", "pip install -q 'rmlab[lab]'", "uv add rmlab", "conda install -c x rmlab"):
        assert STRANGER.search(command)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    paths = [ROOT / name for name in names.split("\0") if (ROOT / name).is_file()]
    matches = {
        path.name: STRANGER.search(path.read_text("utf-8", "ignore")) for path in paths if path != Path(__file__)
    }
    assert {name: match[0] for name, match in matches.items() if match} == {}


HOMES = {
    "metrics": "best_of best_of_curve ties_score ties_detail ensemble",
    "stats": "compare_all calibration calibration_error flips item_difficulty margins power plan equivalence "
    "error_correlation judge_report",
    "bias": "style_gap style_effects exchange_rate probe style_preference style_controlled length_controlled "
    "debias debias_change",
    "papers": "published reproduce audit_leaderboard results",
    "styles": "features audit restyle restyle_pairs",
    "widgets": "explore playground token_rewards",
    "report": "to_markdown to_latex to_csv show",
    "tables": "check_responses check_scores check_pairs",
    "io": "join",
    "toy": "scorer tokenizer save_model serve",
    "plots": "",
    "scorers": "from_gguf smollm2",
}
GONE = {
    "metrics": "rm_bench reward_bench reward_bench_2",
    "stats": "compare_best sensitivity error_clusters letters",
}


def test_public_names_are_where_the_design_says():
    for home, names in HOMES.items():
        for name in names.split():
            thing = getattr(getattr(rmlab, home), name)
            assert callable(thing), f"rmlab.{home}.{name}"
            assert thing.__doc__, f"rmlab.{home}.{name}"
    for home, names in GONE.items():
        assert not [name for name in names.split() if hasattr(getattr(rmlab, home), name)], home


def test_there_are_at_most_120_public_names():
    """Of the package and of its public folders; a name that is in both counts once."""
    public = {}
    for module in (rmlab, *(getattr(rmlab, home) for home in HOMES)):
        assert len(module.__all__) == len(set(module.__all__))
        for name in module.__all__:
            thing = getattr(module, name)
            if not isinstance(thing, types.ModuleType):
                public[id(thing) if callable(thing) else f"{module.__name__}.{name}"] = name
    assert len(public) <= 120, sorted(public.values())


def annotations(tree: ast.AST) -> tuple[int, list[str]]:
    """How many functions there are, and all annotations of arguments, results and variables."""
    n_functions, notes = 0, []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            n_functions += 1
            signature = node.args
            arguments = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
            arguments += [argument for argument in (signature.vararg, signature.kwarg) if argument]
            notes += [argument.annotation for argument in arguments] + [node.returns]
        elif isinstance(node, ast.AnnAssign):
            notes.append(node.annotation)
    return n_functions, [ast.unparse(note) for note in notes if note is not None]


def test_types_say_something():
    """`Any` only where a library forces it: in at most 5 annotations per 100 functions."""
    counts, notes = zip(*map(annotations, trees()), strict=True)
    n_any = sum(bool(re.search(r"\bAny\b", note)) for file_notes in notes for note in file_notes)
    assert n_any <= 0.05 * sum(counts)
    assert (ROOT / "rmlab" / "py.typed").is_file()


def private_names() -> set[str]:
    """Names with a leading underscore that the package gives to functions, classes, constants and attributes."""
    names = set()
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.endswith("_")}


def names_used(node: ast.AST) -> list[str]:
    """Names that a piece of a test uses: of an object, of a module of the package, by getattr or setattr."""
    if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        return [node.attr]
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rmlab":
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "patch")):
        constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        return [value.rpartition(".")[2] for value in constants if value and isinstance(value, str)]
    return []


def test_tests_use_public_names():
    """Tests survive any change of a name with a leading underscore."""
    private = private_names()
    assert private
    uses = [
        f"{path.name}:{node.lineno}: {name}"
        for path in sorted((ROOT / "tests").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in names_used(node)
        if name in private
    ]
    assert uses == []
