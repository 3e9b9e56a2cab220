"""Leaderboards in every format, and the report in one file."""

import re
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import baselines, benchmarks, io, metrics, report, scoring, toy
from rmlab.report.results import read_results
from rmlab.tables import DataError
from rmlab.text import escape_html

NASTY = "owner/<script>alert(1)</script>|a_b&50%$x$#{~^}\\"


@pytest.fixture(scope="module")
def mini():
    return benchmarks.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    models = [toy.scorer(mini, skill=k, style=s, name=f"toy {k} {s}") for k in (0.5, 2.0) for s in (0.0, 1.0)]
    return scoring.score(mini, models, progress=False)


def test_the_benchmarks_own_numbers_stand_in_the_leaderboard(scores):
    for table, columns in (
        (scores, ["chat", "hard", "n_ties"]),
        (reward_bench_pairs(prior_sets=True), ["chat_hard", "reasoning", "prior_sets"]),
        (reward_bench_2_scores(seed=5), ["factuality", "focus", "ties", "missing"]),
    ):
        columns += ["overall", "low", "high", "n_prompts"]
        board = report.leaderboard(table).set_index("model")[columns]
        summary = metrics.summary(table).set_index("model")[columns].astype(float)
        pd.testing.assert_frame_equal(board.loc[summary.index].astype(float), summary, rtol=0, atol=1e-12)


def test_baselines_are_rows_in_any_case(scores, mini):
    drawn = report.leaderboard(scores)
    assert drawn.loc[drawn["kind"] == "baseline", "model"].tolist() == ["random"]
    assert drawn.loc[drawn["kind"] == "baseline", "rank"].isna().all()
    full = report.leaderboard(scores, responses=mini)
    assert set(full.loc[full["kind"] == "baseline", "model"]) == set(baselines.NAMES)
    assert full["rank"].dropna().tolist() == [1, 2, 3, 4]
    longest = metrics.summary(metrics.pairs(scoring.score(mini, ["longest"], progress=False)))
    assert full.set_index("model").loc["longest", "overall"] == pytest.approx(longest["overall"].item())
    from_pairs = report.leaderboard(metrics.pairs(scores), responses=mini)
    pd.testing.assert_frame_equal(from_pairs, full)
    there = report.leaderboard(pd.concat([scores, scoring.score(mini, ["longest"], progress=False)]))
    assert there.loc[there["kind"] == "baseline", "model"].tolist() == ["longest"]


def nasty_board(scores):
    renamed = scores.assign(model=scores["model"].replace({"toy 2.0 0.0": NASTY}))
    return report.leaderboard(renamed)


def test_latex_is_escaped_and_uses_booktabs(scores):
    text = report.to_latex(nasty_board(scores))
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    row = next(line for line in text.splitlines() if "script" in line)
    assert r"a\_b\&50\%\$x\$\#\{\textasciitilde{}\textasciicircum{}\}\textbackslash{}" in row
    columns = len(re.search(r"tabular}{(\w+)}", text)[1])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns - 1 for line in rows)
    assert r"\caption{A \& B}" in report.to_latex(nasty_board(scores), caption="A & B")


def test_csv_reads_back_to_the_same_table(scores, tmp_path):
    board = nasty_board(scores)
    text = report.to_csv(board, tmp_path / "deep" / "board.csv")
    assert (tmp_path / "deep" / "board.csv").read_text() == text
    back = pd.read_csv(tmp_path / "deep" / "board.csv")
    np.testing.assert_allclose(back["overall"], board["overall"], rtol=1e-15)
    assert NASTY in back["model"].tolist()


def test_a_leaderboard_is_shown_as_it_is_printed(scores):
    board = nasty_board(scores)
    html = report.show(board)._repr_html_()
    assert html == report.show(board)._repr_html_()
    assert "random (baseline)" in html
    assert escape_html(NASTY) in html
    assert "<script>" not in html
    lines = repr(report.show(board)).splitlines()
    assert lines[1].split()[:2] == ["rank", "model"]
    assert len(lines) == 2 + len(board)


LONG = "the template writes an end token and the model was trained without it, " * 4 + "and so on"


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (pd.DataFrame({"check": ["head"], "found": [LONG], "response": [LONG.upper()]}), [LONG, LONG.upper()]),
        (pd.DataFrame({"share": [0.12345, np.nan], "p": [4e-5, 0.0]}), ["0.123", "4e-05", "0.000"]),
        (pd.DataFrame({"x": range(200)}), ["0", "199"]),
        (pd.DataFrame([[1, 2]], columns=["note", "note"]), ["note", "1", "2"]),
        (pd.DataFrame({"level": pd.Categorical(["easy", None])}, index=pd.Index(["a", "b"], name="model")), ["model"]),
        (pd.DataFrame({"prompt": [[{"role": "user"}], None, pd.NA]}), ["[{'role': 'user'}]"]),
        (pd.DataFrame(), []),
    ],
    ids=["long texts", "numbers", "many rows", "one name twice", "labels and categories", "messages", "empty"],
)
def test_any_table_is_shown_whole(table, texts):
    html, plain = report.show(table)._repr_html_(), repr(report.show(table))
    for text in texts:
        assert escape_html(text) in html
        assert " ".join(text.split()[:3]) in plain
    assert html.count("<tr") == len(table) + 1
    assert not {"nan", "NaN", "None", "<NA>"} & {*re.findall(r"[<\w>]+", plain)}


def test_numbers_keep_the_provenance_of_their_scores(scores):
    for table in (metrics.summary(scores), metrics.estimates(scores), report.leaderboard(scores)):
        assert table.attrs["provenance"] == scores.attrs["provenance"]


class Reader(HTMLParser):
    """Tags and addresses of a page."""

    def __init__(self):
        super().__init__()
        self.addresses, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]


@pytest.fixture(scope="module")
def results(tmp_path_factory, scores):
    folder = tmp_path_factory.mktemp("results")
    renamed = scores.assign(model=scores["model"].replace({"toy 2.0 0.0": NASTY}))
    renamed.attrs = {"provenance": {"x": 1}}
    io.write_scores(renamed, folder / "mini.csv")
    io.write_scores(reward_bench_2_scores(), folder / "deep" / "two.jsonl")
    io.write_pairs(reward_bench_pairs(), folder / "one.csv")
    return folder


@pytest.fixture(scope="module")
def page(results, tmp_path_factory, mini):
    out = tmp_path_factory.mktemp("out") / "report.html"
    assert report.write_report(results, out, responses=mini) == out
    return out


def test_the_report_needs_nothing_outside_itself(page):
    text = page.read_text()
    reader = Reader()
    reader.feed(text)
    outside = {address for address in reader.addresses if not address.startswith(("#", "data:"))}
    assert outside == {f"https://huggingface.co/datasets/allenai/reward-bench{end}" for end in ("", "-2")}
    assert reader.tags.count("script") == 1 + 3
    assert reader.tags.count("section") == 3 + 3
    assert reader.tags.count("img") == 3 + 2 + 3
    assert "alert(1)&lt;/script&gt;" in text
    assert "default-src 'none'" in text
    assert set(re.findall(r"https?://[^/]+", text)) == {"https://huggingface.co"}


def test_the_same_input_gives_the_same_bytes(page, results, tmp_path, mini):
    again = report.write_report(results, tmp_path / "again.html", responses=mini)
    assert again.read_bytes() == page.read_bytes()
    assert plt.get_fignums() == []


def test_results_come_from_folders_globs_lists_and_tables(results, scores):
    tables, files, *_ = read_results(results)
    assert list(tables) == ["reward-bench-2", "mini", "reward-bench"]
    assert len(files) == 3
    assert list(read_results(str(results / "*.csv"))[0]) == ["mini", "reward-bench"]
    assert list(read_results([results / "mini.csv"])[0]) == ["mini"]
    assert list(read_results(scores)[0]) == ["mini"]
    mixed = read_results([results / "one.csv"])[0]["reward-bench"]
    assert "outcome" in mixed.columns


def test_bad_input_is_named(tmp_path, scores, results):
    with pytest.raises(DataError, match="no result files there"):
        report.write_report(tmp_path, tmp_path / "r.html")
    (tmp_path / "store" / "abc").mkdir(parents=True)
    (tmp_path / "store" / "abc" / "1.records").write_text("")
    with pytest.raises(DataError, match="looks like a store"):
        report.write_report(tmp_path / "store", tmp_path / "r.html")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match=r"bad\.json"):
        report.write_report(tmp_path, tmp_path / "r.html")
    io.write_scores(scores, tmp_path / "two" / "a.csv")
    io.write_scores(scores, tmp_path / "two" / "b.csv")
    with pytest.raises(DataError, match="repeat a key"):
        report.write_report(tmp_path / "two", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
    with pytest.raises(DataError, match="2 benchmarks"):
        report.leaderboard(pd.concat([scores, scores.assign(benchmark="other")]))
    with pytest.raises(DataError, match="best of four, which pairs do not say"):
        report.leaderboard(metrics.pairs(reward_bench_2_scores()))
    with pytest.raises(DataError, match="board: no column"):
        report.to_latex(metrics.summary(metrics.pairs(scores)))
    with pytest.raises(DataError, match="have no text in responses"):
        report.leaderboard(scores, responses=benchmarks.load("mini").iloc[6:])


def test_the_command_writes_the_same_report(results, page, tmp_path):
    from typer.testing import CliRunner

    from rmlab import cli

    out = tmp_path / "r.html"
    done = CliRunner().invoke(cli.app, ["report", str(results), "--texts", "mini", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == page.read_bytes()
    assert done.stdout == ""
    wrong = CliRunner().invoke(cli.app, ["report", str(results), "--path", "x"])
    assert wrong.exit_code == 2
    assert "--texts" in wrong.output


def test_a_comparison_is_a_table_by_the_same_door(make_scores):
    import rmlab

    names = ("chat", "math", "code", "safety-refuse", "safety-response")
    scores = make_scores(dict.fromkeys(names, 8), models=("a_1", "b&c", "longest"))
    one, every = rmlab.compare(scores, "a_1", "b&c"), rmlab.stats.compare_all(scores)
    text = rmlab.report.to_latex(one)
    assert r"\label{tab:comparison}" in text
    assert r"a\_1 & b\&c & " in text
    assert f"{one['difference'][0]:+.3f} & {one['low'][0]:+.3f} to {one['high'][0]:+.3f}" in text
    assert "adjusted" not in text.split("toprule")[1]
    assert rmlab.report.to_latex(every).count(r" \\") == 1 + len(every)
    assert rmlab.report.to_markdown(every).count("\n") == 2 + len(every)
    by_domain = rmlab.report.to_latex(rmlab.compare(scores, "a_1", "b&c", by="domain"), caption="x", label="tab:x")
    assert r"\begin{tabular}{lllr" in by_domain
    assert rmlab.report.to_csv(one).startswith("model_a,model_b,value_a")
