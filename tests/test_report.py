"""Leaderboards and comparisons as tables, and the report in one
file that opens offline.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

import rmlab
from rmlab import baselines, io, metrics, report, scoring, toy
from rmlab.report.sources import read_results
from rmlab.tables import DataError
from rmlab.text import escape_html


@pytest.fixture(scope="module")
def scores(mini):
    models = [
        toy.scorer(mini, skill=k, style=s, name=f"owner/toy-{k}-{s}")
        for k in (0.5, 2.0)
        for s in (0.0, 1.0)
    ]
    return scoring.score(mini, models, progress=False)


@pytest.fixture(scope="module")
def board(scores):
    return report.leaderboard(scores)


# Tables


def test_the_benchmarks_own_numbers_stand_in_the_leaderboard(scores):
    for table in (
        scores,
        reward_bench_pairs(prior_sets=True),
        reward_bench_2_scores(seed=5),
    ):
        summary = metrics.summary(table).set_index("model")
        board = report.leaderboard(table).set_index("model")
        assert {*summary} < {*board}
        pd.testing.assert_frame_equal(
            board.loc[summary.index, summary.columns], summary, check_dtype=False
        )


def test_baselines_are_rows_in_any_case(scores, mini, board):
    def blind(board):
        return board[board["kind"] == "baseline"].set_index("model")

    assert board.attrs["provenance"] == scores.attrs["provenance"]
    assert blind(board).index.tolist() == [baselines.DRAWN]
    full = report.leaderboard(scores, responses=mini)
    assert {*blind(full).index} == {*baselines.NAMES} - {"constant"}
    assert full["rank"].dropna().tolist() == [1, 2, 3, 4]
    longest = scoring.score(mini, ["longest"], progress=False)
    assert blind(full).loc["longest", "overall"] == pytest.approx(
        metrics.summary(longest)["overall"].item()
    )
    of_pairs = report.leaderboard(metrics.pairs(scores), responses=mini)
    pd.testing.assert_frame_equal(of_pairs, full)


def body_rows(latex):
    return [line for line in latex.splitlines() if line.endswith(r"\\")][1:]


def test_a_leaderboard_and_a_comparison_are_tables_of_papers(
    board, make_scores, tmp_path
):
    names = ("chat", "math", "code", "safety-refuse", "safety-response")
    scores = make_scores(dict.fromkeys(names, 8), models=("a_1", "b&c"))
    comparison = rmlab.compare(scores, "a_1", "b&c")
    for table in (board, comparison):
        text = report.to_latex(table)
        assert "95 \\% interval" in re.search(r"caption{(.*)}", text)[1]
        n_columns = len(re.search(r"tabular}{(\w+)}", text)[1])
        rows = body_rows(text)
        assert len(rows) == len(table)
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {n_columns - 1}
        assert report.to_markdown(table).count("\n") == 2 + len(table)
        path = tmp_path / "deep" / "table.csv"
        assert report.to_csv(table, path) == path.read_text()
        np.testing.assert_allclose(pd.read_csv(path)["low"], table["low"], rtol=1e-15)
    row = comparison.iloc[0]
    cell = f"{row['difference']:z.3f} ({row['low']:z.3f} to {row['high']:z.3f})"
    latex = report.to_latex(comparison)
    assert re.search(rf"a\\_1 & b\\&c & .*{re.escape(cell)}", latex)


def test_tables_of_papers_keep_the_names_of_their_rows(scores):
    """A matrix was printed without the styles of its rows."""
    table = rmlab.matrix(scores[scores["model"] == scores["model"].iloc[0]])
    header, *rows = report.to_csv(table).splitlines()
    assert header == "chosen_style,concise,plain,markdown"
    for written, sign in ((rows, ","), (body_rows(report.to_latex(table)), " & ")):
        assert [row.split(sign)[0] for row in written] == [*table.index]


def test_a_caption_may_be_latex_and_columns_may_be_chosen(board):
    caption = r"\textbf{Ours} $> 0.5$, see \cref{fig:one}"
    columns = ["model", "hard", "overall"]
    text = report.to_latex(board, caption=caption, columns=columns)
    assert rf"\caption{{{caption}}}" in text
    assert r"model & hard & overall \\" in text
    first = board.iloc[0]
    interval = f"({first['low']:.3f} to {first['high']:.3f})"
    cells = f"{first['hard']:.3f} & {first['overall']:.3f} {interval}"
    assert cells in body_rows(text)[0]
    with pytest.raises(rmlab.DataError, match=r"'overal'.*'overall'"):
        report.to_latex(board, columns=["model", "overal"])


def test_several_benchmarks_are_one_table_with_their_own_numbers(scores):
    second = reward_bench_2_scores(seed=5, models=("x", "y"))
    names = dict(zip("xy", scores["model"].unique()[:2], strict=True))
    second["model"] = second["model"].map(names)
    third = metrics.pairs(scores.assign(benchmark="own"))
    board = report.compare_benchmarks([scores, second, third]).set_index("model")
    for table in (scores, second, third):
        name = table["benchmark"].iloc[0]
        summary = metrics.summary(table).set_index("model")[["overall", "low", "high"]]
        columns = [name, f"{name}_low", f"{name}_high"]
        numbers = board.loc[summary.index, columns]
        assert numbers.to_numpy().tolist() == summary.to_numpy().tolist()
    without = board[board["reason"] != ""]
    assert {*without.index} == {*scores["model"]} - {*names.values()}
    assert without[["reward-bench-2", "mean_rank"]].isna().all(axis=None)
    assert without["reason"].str.contains("reward-bench-2").all()


def test_a_mean_rank_is_over_models_with_all_benchmarks():
    def table(benchmark, wins):
        rows = [
            (model, "win" if i < n else "loss", str(i))
            for model, n in wins.items()
            for i in range(10)
        ]
        frame = pd.DataFrame(rows, columns=["model", "outcome", "id"])
        keys = {"benchmark": benchmark, "domain": "d"}
        return frame.assign(**keys, chosen_slot=0, rejected_slot=0)

    tables = [
        table("x", {"a": 5, "b": 5, "c": 2, "absent": 9, "random": 7}),
        table("y", {"b": 4, "a": 3, "c": 8, "random": 1}),
    ]
    board = report.compare_benchmarks(pd.concat(tables))
    ranks = board.set_index("model")["mean_rank"]
    assert ranks[["a", "b", "c"]].tolist() == [2.0, 1.5, 2.0]
    assert ranks[["absent", "random"]].isna().all()
    assert board["model"].tolist()[0] == "b"


LONG = ", ".join(["the template writes an EOS token without which it was trained"] * 5)


def test_any_table_is_shown_whole():
    texts = {"found": [LONG, "<i>"], "share": [0.12345, np.nan], "p": [4e-5, 0.0]}
    labels = pd.Index(["a", "b"], name="model")
    rows = {"x": range(200)}
    for content, index, expected in (
        (texts, labels, [LONG, "<i>", "0.123", "4e-05", "0.000", "model", "a"]),
        (rows, None, ["0", "199"]),
        ({}, None, []),
    ):
        table = pd.DataFrame(content, index)
        html, plain = report.show(table)._repr_html_(), repr(report.show(table))
        for text in expected:
            assert escape_html(text) in html
            assert " ".join(text.split()[:3]) in plain
        assert html.count("<tr") == len(table) + 1
        assert not {"nan", "NaN", "None", "<NA>"} & {*plain.split()}


def words_of(table):
    """Column names and cells of a shown table."""
    html = report.show(table)._repr_html_()
    names = re.findall(r"<th>(.*?)</th>", html)
    rows = [re.findall(r"<td>(.*?)</td>", row, re.S) for row in html.split("<tr>")[1:]]
    return names, [dict(zip(names, row, strict=True)) for row in rows]


def test_what_is_shown_of_a_wide_table_has_ten_columns_with_the_numbers_that_matter(
    board, scores
):
    a, b = board["model"][:2]
    for table, value, needed in (
        (board, "overall", {"rank", "model", "chat", "hard"}),
        (metrics.summary(scores), "overall", {"model", "easy", "hard"}),
        (rmlab.estimates(scores), "value", {"model", "quantity", "name"}),
        (rmlab.compare(scores, a, b), "difference", {"model_a", "model_b", "p"}),
    ):
        names, rows = words_of(table)
        assert len(names) <= 10
        assert needed <= {*names}
        assert len(rows) == len(table)
        row = table.iloc[0]
        expected = [f"{row[name]:z.3f}" for name in (value, "low", "high")]
        assert re.findall(r"-?\d\.\d+", rows[0][value]) == expected


def test_the_reason_of_a_missing_score_is_shown_and_empty_columns_are_not(scores):
    names, rows = words_of(rmlab.leaderboard(scores[scores["domain"] != "math"]))
    assert len(names) <= 10
    assert all("math" in row["reason"] for row in rows)
    assert "overall" not in names  # no model has one
    assert "reason" not in words_of(rmlab.leaderboard(scores))[0]


# The report


@pytest.fixture(scope="module")
def results(tmp_path_factory, scores):
    folder = tmp_path_factory.mktemp("results")
    io.write_scores(scores, folder / "mini.csv")
    io.write_scores(reward_bench_2_scores(), folder / "deep" / "two.jsonl")
    io.write_pairs(reward_bench_pairs(), folder / "one.csv")
    return folder


@pytest.fixture(scope="module")
def page(results, tmp_path_factory, mini):
    return write_page(results, tmp_path_factory.mktemp("out"), responses=mini)


def write_page(source, folder, **options):
    out = folder / "r.html"
    assert report.write_report(source, out, **options) == out
    return out.read_text()


def test_the_report_leads_nowhere_but_to_the_hub_and_runs_its_own_script_only(page):
    links = re.findall(r'<[^>]*\s(?:src|href|action)="(.*?)"', page)
    assert {link for link in links if not link.startswith(("#", "data:"))} == {
        link for link in links if link.startswith("https://huggingface.co/")
    }
    assert {*re.findall(r"https?://[^/]+", page)} <= {"https://huggingface.co"}
    assert "default-src 'none'" in page
    assert "'sha256-" in page
    assert page.count("<h2>") == 6, "three benchmarks, each with an explorer"
    assert page.count("How the models were scored") == 1, "mini alone has a provenance"


def test_the_command_writes_the_same_bytes(main, results, page, tmp_path):
    out = tmp_path / "r.html"
    assert main("report", results, "--texts", "mini", "-o", out)[:2] == (0, "")
    assert out.read_text() == page


def test_results_come_from_folders_globs_lists_and_tables(results, mini):
    assert [*read_results(results).tables] == ["reward-bench-2", "mini", "reward-bench"]
    tables = [scoring.score(mini, [name]) for name in ("longest", "random")]
    for source in (str(results / "m*.csv"), [results / "mini.csv"], tables):
        assert [*read_results(source).tables] == ["mini"]
    # Each model of a list kept the provenance of the first table only.
    provenance = read_results(tables).tables["mini"].attrs["provenance"]
    assert {*provenance} == {"longest", "random"}


def test_bad_input_is_named(tmp_path, scores, mini):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{")
    for source, out, options, message in (
        (tmp_path / "empty", "r.html", {}, "empty"),
        (tmp_path / "bad.json", "r.html", {}, r"bad\.json"),
        ([scores, scores], "r.html", {}, "key"),
        (scores, "r.html", {"texts": True}, "texts"),
        (scores, "r.html", {"responses": mini.assign(benchmark="x", id="0")}, "'x'"),
        (scores, "r.tex", {}, "r.tex"),
    ):
        with pytest.raises(DataError, match=message):
            report.write_report(source, tmp_path / out, **options)
    several = pd.concat([scores, scores.assign(benchmark="other")])
    for table, responses, message in (
        (several, None, "2 benchmarks"),
        (metrics.pairs(reward_bench_2_scores()), None, "best of four"),
        (scores, mini.iloc[6:], "responses"),
    ):
        with pytest.raises(DataError, match=message):
            report.leaderboard(table, responses=responses)


def test_texts_are_in_the_page_only_where_asked(page, mini, scores, tmp_path):
    """Also of texts without styles, which the scores have: it was a KeyError."""
    plain = mini.drop(columns="style")
    whole = write_page(scores, tmp_path, responses=plain, texts=True)
    for text, n_expected in ((page, 0), (whole, 64)):
        pattern = r'<script type="application/json">(.*?)</script>'
        lines = re.search(pattern, text, re.DOTALL)[1].split("\n")
        assert sum(bool(json.loads(line)) for line in lines[1:]) == n_expected


def test_a_report_without_mathematics_leaves_missing_what_python_leaves_missing(
    tmp_path,
):
    scores = rmlab.papers.results("smollm2-rm-bench")
    assert report.leaderboard(scores)["overall"].isna().all()
    text = write_page(scores, tmp_path)
    assert "nothing in math" in text
    assert "<img" not in text


def test_baselines_alone_make_a_report(mini, tmp_path):
    page = write_page(scoring.score(mini, ["longest"], progress=False), tmp_path)
    assert "Baselines alone" in page


@pytest.mark.parametrize("lacks", ["scores", "rows"])
def test_a_model_without_scores_takes_no_report_down(scores, tmp_path, lacks):
    """No item was answered by all models, or some rows were absent."""
    model = scores["model"].iloc[0]
    broken = scores[scores["model"] == model].assign(model="owner/broken")
    if lacks == "scores":
        broken["score"] = np.nan
    else:
        broken = broken[broken["domain"] != "math"]
    table = pd.concat([scores, broken], ignore_index=True)
    if lacks == "scores":
        page = write_page(table, tmp_path)
        assert page.count("<img") == 3
        assert "owner/broken" in page
    board = report.leaderboard(table, common=None).set_index("model")
    alone = report.leaderboard(scores).set_index("model")
    assert np.isnan(board.loc["owner/broken", "overall"])
    assert board.loc["owner/broken", "reason"] != ""
    columns = ["overall", "low", "high", "group", "missing"]
    pd.testing.assert_frame_equal(board.loc[alone.index, columns], alone[columns])
