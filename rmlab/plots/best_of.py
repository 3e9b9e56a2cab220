"""Figures of best of n: subset bars, curves over n, and the spread and the gap of prompts with many right answers."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab.plots.canvas import canvas
from rmlab.plots.names import plain, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_best_of", "plot_subsets", "plot_ties"]

# Okabe and Ito's colours without yellow and black: told apart with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#5b3a8e")
MARKERS = "osD^vPX*"


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
        ax.bar(x, height, 0.92 * width, color=COLOURS[number], label=short(model), zorder=2)
        ax.vlines(x, rows["low"], rows["high"], color="black", lw=1, zorder=3)
    for name, chance in table.groupby("name", sort=False)["chance"].first().dropna().items():
        ax.hlines(chance, place[name] - 0.45, place[name] + 0.45, color="black", ls=":", lw=1.2, zorder=4)
    ax.set(xticks=range(len(subsets)), ylabel="score", ylim=(0, 1.02), xlim=(-0.6, len(subsets) - 0.4))
    ax.set_xticklabels([plain(name.replace("_", " ")) for name in subsets])
    ax.tick_params(axis="x", length=0)
    _dress(ax)
    _legend(ax, models)
    return ax


def plot_best_of(curve: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Accuracy of picking the right answer among n, one panel per subset, as `best_of_curve` returns it; the Figure.

    One line per model with its 95 % interval; the dotted line is chance, 1/n. At most eight models.
    """
    needed = ["model", "domain", "n", "accuracy", "low", "high", "chance"]
    _require(curve, needed, "rmlab.metrics.best_of_curve(scores)")
    models, panels = _few(curve["model"]), list(dict.fromkeys(curve["domain"]))
    figure, axes = _grid(len(panels), columns, (2.5, 2.4), sharey=True)
    for ax, domain in zip(axes.flat, panels, strict=False):
        here = curve[curve["domain"] == domain]
        for number, model in enumerate(models):
            rows = here[here["model"] == model].sort_values("n")
            ax.fill_between(rows["n"], rows["low"], rows["high"], color=COLOURS[number], alpha=0.15, lw=0)
            ax.plot(
                rows["n"], rows["accuracy"], color=COLOURS[number], marker=MARKERS[number], ms=5, label=short(model)
            )
        chance = here.groupby("n")["chance"].first()
        ax.plot(chance.index, chance, color="black", ls=":", lw=1.2, label="chance")
        ax.set(title=plain(domain), xticks=sorted(here["n"].unique()), xlabel="answers (n)", ylim=(0, 1.02))
        _dress(ax)
    axes.flat[0].set_ylabel("right answer on top")
    _shared_legend(figure, axes.flat[0])
    return figure


def plot_ties(detail: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Spread against gap of every Ties prompt with several right answers, one panel per model; the Figure.

    `detail` is what `ties_detail` returns. Right: right answers get different scores. Up: they stand above the wrong
    ones. Below the solid line a wrong answer is above a right one; above the dashed line (gap = spread) the model
    tells right from wrong more clearly than right from right. Scores have no common unit: each panel has its own.
    """
    _require(detail, ["model", "kind", "spread", "gap"], "rmlab.metrics.ties_detail(scores)")
    tied = detail[(detail["kind"] == "tied") & detail["spread"].notna() & detail["gap"].notna()]
    if tied.empty:
        raise DataError("detail: no prompt with several right answers and known scores; score the Ties subset")
    models = list(dict.fromkeys(tied["model"]))
    figure, axes = _grid(len(models), columns, (2.9, 2.9))
    for ax, model in zip(axes.flat, models, strict=False):
        rows = tied[tied["model"] == model]
        spread, gap = rows["spread"].to_numpy(float), rows["gap"].to_numpy(float)
        kinds = {
            "gap above spread": gap > spread,
            "right above wrong": (gap > 0) & (gap <= spread),
            "neither": gap <= 0,
        }
        for (name, mask), colour, marker in zip(
            kinds.items(), (COLOURS[0], COLOURS[5], COLOURS[1]), "oDX", strict=True
        ):
            ax.scatter(
                spread[mask], gap[mask], s=22, color=colour, marker=marker, alpha=0.8, lw=0, label=name, zorder=3
            )
        most = 1.05 * max(spread.max(), np.abs(gap).max(), 1e-9)
        ax.axhline(0, color="black", lw=0.8)
        ax.plot([0, most], [0, most], color="black", lw=0.8, ls="--")
        counts = ", ".join(f"{mask.sum()}" for mask in kinds.values())
        ax.set(xlim=(-0.03 * most, most), ylim=(min(1.1 * gap.min(), -0.05 * most), most))
        ax.set_title(f"{textwrap.fill(short(model), 28)}\n({counts})", fontsize="medium")
        _dress(ax)
    figure.supxlabel("spread of the right answers (largest minus smallest score)", fontsize="medium")
    figure.supylabel("gap (smallest right minus largest wrong)", fontsize="medium")
    _shared_legend(figure, axes.flat[0])
    return figure


def _grid(panels: int, columns: int, size: tuple[float, float], *, sharey: bool = False) -> "tuple[Figure, Any]":
    import matplotlib.pyplot as plt

    across = min(columns, panels)
    down = -(-panels // across)
    figure: Figure
    figure, axes = plt.subplots(
        down,
        across,
        figsize=(max(size[0] * across + 0.6, 4.8), size[1] * down + 0.9),
        squeeze=False,
        sharey=sharey,
        layout="constrained",
    )
    for ax in axes.flat[panels:]:
        ax.set_axis_off()
    return figure, axes


def _few(models: pd.Series) -> list[str]:
    names = list(dict.fromkeys(models))
    if len(names) > len(COLOURS):
        raise DataError(
            f"table: {len(names)} models; at most {len(COLOURS)} can be told apart: keep some, "
            "for example table[table['model'].isin([...])]"
        )
    return names


def _legend(ax: "Axes", models: list[str]) -> None:
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(models), 3), frameon=False)


def _shared_legend(figure: "Figure", ax: "Axes") -> None:
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 4), frameon=False)


def _dress(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)


def _require(table: pd.DataFrame, columns: list[str], source: str) -> None:
    absent = [c for c in columns if c not in table.columns]
    if absent:
        raise DataError(f"table: no column {absent[0]!r}; pass what {source} returns")
