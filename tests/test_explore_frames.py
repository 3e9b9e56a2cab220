"""Tables in notebooks: messages are whole, scores say what made them, everything else is as pandas shows it."""

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

import rmlab
from rmlab import baselines
from rmlab.benchmarks import load
from rmlab.scoring import score
from rmlab.widgets import frames

LONG = "the template writes an end token and the model was trained without it " * 4


@pytest.mark.parametrize("column", frames.MESSAGES)
def test_messages_are_whole_and_wrap(column):
    table = pd.DataFrame({"check": ["head", "pad"], "status": ["pass", "warn"], column: [LONG, "<b>short</b>"]})
    html = frames.frame_html(table)
    assert LONG.strip() in html
    assert "&lt;b&gt;short" in html
    assert ".rmlab-frame-4 td:nth-child(4) { text-align: left; white-space: normal" in html
    assert LONG.strip() not in table._repr_html_()


def test_other_long_texts_are_still_cut():
    html = frames.frame_html(pd.DataFrame({"response": [LONG], "note": [LONG + "!"]}))
    assert html.count(LONG.strip()) == 1
    assert "..." in html


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1.5, np.nan], "note": ["short", None]}),
        pd.DataFrame({"response": [LONG]}),
        pd.DataFrame([[1, 2]], columns=["note", "note"]),
        pd.DataFrame(),
        pd.DataFrame({"x": range(200)}),
    ],
    ids=["short", "a response", "the same name twice", "empty", "many rows"],
)
def test_everything_else_is_as_pandas_shows_it(table):
    assert frames.frame_html(table) == table._repr_html_()


def test_scores_say_what_made_them_whatever_it_is_called():
    responses = load("mini")
    scores = score(responses, baselines.longest)
    assert "Scored by longest (rmlab.baselines.Baseline)." in frames.frame_html(scores)
    assert "Scored by longest" in frames.frame_html(scores[["model", "id", "score"]].head().round(1))
    scores.attrs["provenance"] = {
        "<img src=x onerror=alert(1)>": {"model": "owner/rm", "revision": "0123456789", "dtype": "bfloat16"},
        **{f"m{k}": {"mode": "mean"} for k in range(9)},
    }
    html = frames.frame_html(scores)
    assert "&lt;img src=x onerror=alert(1)&gt;: owner/rm, revision 0123456, bfloat16; m0: mode mean" in html
    assert "and 6 more." in html
    assert "Scored by" not in frames.frame_html(scores[["id", "score"]]), "part of a table is not a table of scores"
    scores.attrs["provenance"] = "a word"
    assert frames.frame_html(scores) == scores._repr_html_()


def test_a_shell_shows_tables_so_and_a_display_of_somebody_else_stays(monkeypatch):
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    frames.show_in_notebooks()
    table = pd.DataFrame({"note": [LONG]})
    assert LONG.strip() in shell.display_formatter.format(table)[0]["text/html"]
    assert shell.display_formatter.format(table)[0]["text/plain"] == repr(table)
    other = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: other)
    other.display_formatter.formatters["text/html"].for_type(pd.DataFrame, lambda frame: "theirs")
    frames.show_in_notebooks()
    assert other.display_formatter.format(table)[0]["text/html"] == "theirs"


def test_numbers_say_what_scored_as_their_scores_do():
    responses = rmlab.load("mini")
    scores = pd.concat([rmlab.score(responses, name, progress=False) for name in ("longest", "shortest")])
    scores.attrs["provenance"] = {"longest": {"model": "owner/rm", "dtype": "float32"}}
    line = frames.provenance_line(scores.attrs["provenance"])
    made = [rmlab.summary(scores), rmlab.estimates(scores), rmlab.rank(scores), rmlab.leaderboard(scores)]
    for table in [*made, rmlab.compare(scores, "longest", "shortest")]:
        assert line in frames.frame_html(table)
    scores.attrs = {}
    assert "Scored by" not in frames.frame_html(rmlab.summary(scores))
