"""The analysis needs numpy, pandas, scipy, statsmodels, matplotlib, seaborn and pure
Python, as a browser has them.
"""

import os
import subprocess
import sys
import textwrap

import pytest

GUARD = '''
import importlib.abc, importlib.machinery, pathlib, sys

ANALYSIS = {
    "numpy", "pandas", "scipy", "statsmodels", "matplotlib", "mpl_toolkits", "seaborn",
}
# Of matplotlib itself; Pyodide has them.
DRAWING = {"PIL", "contourpy", "kiwisolver", "fontTools"}
# Without compiled files of their own, but of no use where compiled ones or a server are
# missing.
SERVED = {
    "transformers", "huggingface_hub", "pydantic", "anywidget", "ipywidgets", "httpx",
    "typer",
}
ALLOWED = {*ANALYSIS, *DRAWING, "rmlab"}


class Guard(importlib.abc.MetaPathFinder):
    """Hides every package with compiled code but those of the analysis."""

    def find_spec(self, name, path=None, target=None):
        if "." in name or name in sys.stdlib_module_names or name in ALLOWED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name)
        if spec is not None and (name in SERVED or self._compiled(spec)):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

    @staticmethod
    def _compiled(spec):
        endings = tuple(importlib.machinery.EXTENSION_SUFFIXES)
        if (spec.origin or "").endswith(endings):
            return True
        folders = map(pathlib.Path, spec.submodule_search_locations or [])
        files = [file for folder in folders for file in folder.rglob("*.so")]
        return any(file.name.endswith(endings) for file in files)


sys.meta_path.insert(0, Guard())
'''

BLOCKED = """
import importlib
names = [
    "torch", "transformers", "pyarrow", "tokenizers", "safetensors", "pydantic",
    "pydantic_core", "regex", "nh3", "anywidget", "ipywidgets", "huggingface_hub",
    "hf_xet", "httpx", "sklearn", "yaml",
]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} was imported")
"""

ANALYSIS = """
import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot as plt
import pandas as pd
import rmlab

responses = rmlab.load("mini")
baselines = rmlab.baselines
models = [baselines.longest, baselines.random, baselines.most_markdown]
models += [
    rmlab.toy.scorer(
        responses, skill=1.0, style=s, noise=0.5, seed=1, name=f"toy {s}"
    )
    for s in (0.3, 1.0)
]
scores = pd.concat([rmlab.score(responses, model) for model in models])
pairs = rmlab.pairs(scores)
assert len(pairs) == 5 * 9 * len(responses[["domain", "id"]].drop_duplicates())

for function in (
    rmlab.summary, rmlab.estimates, rmlab.accuracy, rmlab.rank, rmlab.leaderboard,
    rmlab.style_gap, rmlab.bias.style_preference,
):
    assert len(function(scores)), function
features = rmlab.styles.features(responses)
for function in (rmlab.style_effects, rmlab.exchange_rate):
    assert len(function(scores, features)), function
assert len(rmlab.bias.length_controlled(pairs, features))
assert len(rmlab.compare(scores, "toy 0.3", "toy 1.0"))

assert "check" in rmlab.styles.audit(responses)
assert len(rmlab.papers.published("rm-bench"))
assert "toy" in rmlab.report.to_markdown(rmlab.leaderboard(scores))
rmlab.write_scores(scores, "scores.csv")
assert rmlab.summary(rmlab.read_scores("scores.csv")).equals(rmlab.summary(scores))

plots = rmlab.plots
ax = rmlab.plot_matrix(scores[scores["model"] == "toy 1.0"])
ax.figure.savefig("matrix.png")
plots.plot_leaderboard(rmlab.leaderboard(scores))
plots.plot_rank(rmlab.rank(scores))
plots.plot_scatter(rmlab.summary(scores), "easy", "hard")
plots.plot_effects(rmlab.style_effects(scores, responses))
plots.plot_lengths(responses)
for plot in (
    rmlab.plot_matrices, rmlab.plot_style_gap, plots.plot_forest,
    plots.plot_calibration,
):
    plot(pairs)
    plt.close("all")
"""


def run(code, folder):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MPLCONFIGDIR": str(folder),
    }
    command = [
        sys.executable,
        "-W",
        "error::DeprecationWarning:rmlab",
        "-c",
        GUARD + textwrap.dedent(code),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment
    )


@pytest.mark.parametrize(
    "code", [BLOCKED, ANALYSIS], ids=["what is hidden", "the analysis"]
)
def test_the_analysis_runs_without_compiled_packages_of_others(code, tmp_path):
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
