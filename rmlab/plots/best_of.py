"""Figures of best of n: subset bars, curves over n, and the spread and the gap of prompts with many right answers."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import known
from rmlab.plots.canvas import bare, canvas, legend_columns, panels, plain, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_best_of", "plot_subsets", "plot_ties", "tie_points"]

# Okabe and Ito's colours without yellow and black: told apart with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#5b3a8e")
MARKERS = "osD^vPX*"
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++", "oooo")  # of bars, for print without colour
_BESIDE, _WIDEST = 0.1, 0.5  # of one answer: between the intervals of neighbours, and from the first to the last
_KINDS = {"clear": (COLOURS[0], "o"), "right": (COLOURS[5], "D"), "wrong": (COLOURS[1], "X")}
_KIND_WORDS = {
    "clear": "clear: gap above spread",
    "right": "right: every right answer on top",
    "wrong": "wrong: a wrong answer above a right one",
}


def plot_subsets(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Bars of a benchmark's subsets, one colour per model, from `rmlab.estimates(scores)`; returns the Axes.

    Thin lines are 95 % intervals. The dotted line at a subset is what random scores earn there (1/4 for best of four;
    Ties has none). At most eight models: choose some of `table` for more.
    """
    _require(table, ["model", "quantity", "name", "value", "low", "high", "chance"], "rmlab.estimates(scores)")
    table = table[table["quantity"] == "subset"]
    if table.empty:
        raise DataError("table: no row has the quantity 'subset'; this benchmark has none")
    models, subsets = _few(table["model"]), list(dict.fromkeys(table["name"]))
    ax = canvas(ax, (max(6.4, 0.9 * len(subsets) + 0.2 * len(subsets) * len(models)), 3.9))
    width = 0.8 / len(models)
    place = {name: i for i, name in enumerate(subsets)}
    for number, model in enumerate(models):
        rows = table[table["model"] == model]
        x = rows["name"].map(place).to_numpy(float) + (number - (len(models) - 1) / 2) * width
        height = rows["value"].to_numpy(float)
        ax.bar(x, height, 0.92 * width, color=COLOURS[number], hatch=HATCHES[number], edgecolor="white", lw=0,
               label=short(model), zorder=2)  # fmt: skip
        ax.vlines(x, rows["low"], rows["high"], color="black", lw=1, zorder=3)
    for name, chance in table.groupby("name", sort=False)["chance"].first().dropna().items():
        ax.hlines(chance, place[name] - 0.45, place[name] + 0.45, color="black", ls=":", lw=1.2, zorder=4)
    ax.set(xticks=range(len(subsets)), ylabel="score", ylim=(0, 1.02), xlim=(-0.6, len(subsets) - 0.4))
    ax.set_xticklabels([_title(name) for name in subsets], rotation=0 if len(subsets) <= 8 else 90)
    ax.tick_params(axis="x", length=0)
    bare(ax)
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=legend_columns(models), frameon=False, fontsize="small"
    )
    return ax


def plot_best_of(curve: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Accuracy of picking the right answer among n, one panel per subset, as `best_of_curve` returns it; the Figure.

    One line per model with its 95 % intervals, a little beside those of the others; the dotted line is chance, 1/n.
    At most eight models.
    """
    needed = ["model", "domain", "n", "accuracy", "low", "high", "chance"]
    _require(curve, needed, "rmlab.metrics.best_of_curve(scores)")
    models, domains = _few(curve["model"]), list(dict.fromkeys(curve["domain"]))
    figure, axes = panels(len(domains), columns, (2.5, 2.2), shared=True)
    for ax, domain in zip(axes, domains, strict=True):
        here = curve[curve["domain"] == domain]
        for number, model in enumerate(models):
            rows = here[here["model"] == model].sort_values("n")
            x = rows["n"] + (number - (len(models) - 1) / 2) * min(_BESIDE, _WIDEST / len(models))
            ax.vlines(x, rows["low"], rows["high"], color=COLOURS[number], lw=1)
            ax.plot(x, rows["accuracy"], color=COLOURS[number], marker=MARKERS[number], ms=5, label=short(model))
        chance = here.groupby("n")["chance"].first()
        ax.plot(chance.index, chance, color="black", ls=":", lw=1.2, label="chance")
        ax.set(xticks=sorted(curve["n"].unique()), ylim=(0, 1.02))
        ax.set_title(plain(domain), fontsize="medium")
        bare(ax)
    figure.supxlabel("answers (n)", fontsize="medium")
    figure.supylabel("right answer on top", fontsize="medium")
    _shared_legend(figure, axes[0])
    return figure


def plot_ties(detail: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Spread against gap of every Ties prompt with several right answers, one panel per model; the Figure.

    `detail` is what `ties_detail` returns. Right: right answers get different scores. Up: they stand above the wrong
    ones. Below the solid line a wrong answer is above a right one; above the dashed line (gap = spread) the model
    tells right from wrong more clearly than right from right. Scores of models have no common unit, so both are
    divided by the model's mean spread, and all panels have the same axes. The numbers drawn are `tie_points(detail)`.
    """
    points = tie_points(detail)
    models = list(dict.fromkeys(points["model"]))
    figure, axes = panels(len(models), columns, (2.6, 2.7), shared=True)
    most = 1.05 * max(points["spread"].max(), 1e-9)
    for ax, model in zip(axes, models, strict=True):
        rows = points[points["model"] == model]
        for kind, (colour, mark) in _KINDS.items():
            part = rows[rows["result"] == kind]
            ax.scatter(
                part["spread"], part["gap"], s=20, color=colour, marker=mark, alpha=0.8, lw=0,
                label=_KIND_WORDS[kind], zorder=3,
            )  # fmt: skip
        ax.axhline(0, color="black", lw=0.8)
        ax.plot([0, most], [0, most], color="black", lw=0.8, ls="--")
        counts = ", ".join(f"{(rows['result'] == kind).sum()} {kind}" for kind in _KINDS)
        ax.set_title(f"{textwrap.fill(short(model), 26)}\n{counts}", fontsize="small")
        bare(ax)
    axes[0].set(xlim=(-0.03 * most, most), ylim=(1.1 * min(points["gap"].min(), -0.05), 1.05 * points["gap"].max()))
    figure.supxlabel("spread of the right answers (in mean spreads of the model)", fontsize="medium")
    figure.supylabel("smallest right minus largest wrong", fontsize="medium")
    _shared_legend(figure, axes[0])
    return figure


def tie_points(detail: pd.DataFrame) -> pd.DataFrame:
    """The numbers of `plot_ties`: one row per model and prompt with several right answers.

    Columns: model, id, spread and gap in mean spreads of the model (in mean gaps where all its spreads are 0), result:
    "clear" (gap above spread), "right" (above 0) or "wrong".
    """
    _require(detail, ["model", "id", "kind", "spread", "gap"], "rmlab.metrics.ties_detail(scores)")
    tied = detail[(detail["kind"] == "tied") & detail["spread"].notna() & detail["gap"].notna()]
    if tied.empty:
        raise DataError("detail: no prompt with several right answers and known scores; score the Ties subset")
    sizes = tied.assign(gap=tied["gap"].abs()).groupby("model")[["spread", "gap"]].mean().replace(0, np.nan)
    unit = tied["model"].map(sizes["spread"].fillna(sizes["gap"]).fillna(1.0)).to_numpy(float)
    spread, gap = tied["spread"].to_numpy(float) / unit, tied["gap"].to_numpy(float) / unit
    result = np.select([gap > spread, gap > 0], ["clear", "right"], "wrong")
    return tied[["model", "id"]].assign(spread=spread, gap=gap, result=result).reset_index(drop=True)


def _title(name: str) -> str:
    """A subset as its benchmark writes it: "Precise IF" for precise_if."""
    titles = {column: subset for one in known().values() for subset, column in one.subset_names.items()}
    return plain(titles.get(name, name.replace("_", " ")))


def _few(models: pd.Series) -> list[str]:
    names = list(dict.fromkeys(models))
    if len(names) > len(COLOURS):
        raise DataError(
            f"table: {len(names)} models; at most {len(COLOURS)} can be told apart: keep some, "
            "for example table[table['model'].isin([...])]"
        )
    return names


def _shared_legend(figure: "Figure", ax: "Axes") -> None:
    handles, names = ax.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside upper center", ncols=legend_columns(names), frameon=False, fontsize="small"
    )


def _require(table: pd.DataFrame, columns: list[str], source: str) -> None:
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise DataError(f"table: no column {missing[0]!r}; pass what {source} returns")
