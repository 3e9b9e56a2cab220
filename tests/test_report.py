"""Leaderboards and comparisons as tables, and the report in one
file that opens offline.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs
from typer.testing import CliRunner

import rmlab
from rmlab import baselines, cli, io, metrics, report, scoring, toy
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
    for table, columns in (
        (scores, ["chat", "hard", "n_ties"]),
        (reward_bench_pairs(prior_sets=True), ["chat_hard", "reasoning", "prior_sets"]),
        (reward_bench_2_scores(seed=5), ["factuality", "focus", "ties", "missing"]),
    ):
        columns += ["overall", "low", "high", "n_prompts"]
        board = report.leaderboard(table).set_index("model")[columns]
        summary = metrics.summary(table).set_index("model")[columns].astype(float)
        pd.testing.assert_frame_equal(
            board.loc[summary.index].astype(float), summary, rtol=0, atol=1e-12
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
    pd.testing.assert_frame_equal(
        report.leaderboard(metrics.pairs(scores), responses=mini), full
    )


def test_a_leaderboard_and_a_comparison_are_tables_of_papers(
    board, make_scores, tmp_path
):
    sizes = dict.fromkeys(
        ("chat", "math", "code", "safety-refuse", "safety-response"), 8
    )
    one = rmlab.compare(make_scores(sizes, models=("a_1", "b&c")), "a_1", "b&c")
    for table in (board, one):
        text = report.to_latex(table)
        assert "95 \\% interval" in re.search(r"caption{(.*)}", text)[1]
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        n_columns = len(re.search(r"tabular}{(\w+)}", text)[1])
        assert [len(re.findall(r"(?<!\\)&", line)) for line in rows] == [
            n_columns - 1
        ] * (1 + len(table))
        assert report.to_markdown(table).count("\n") == 2 + len(table)
        path = tmp_path / "deep" / "table.csv"
        assert report.to_csv(table, path) == path.read_text()
        np.testing.assert_allclose(pd.read_csv(path)["low"], table["low"], rtol=1e-15)
    row = one.iloc[0]
    cell = f"{row['difference']:z.3f} ({row['low']:z.3f} to {row['high']:z.3f})"
    assert re.search(rf"a\\_1 & b\\&c & .*{re.escape(cell)}", report.to_latex(one))


def test_tables_of_papers_keep_the_names_of_their_rows(make_scores):
    """A matrix was printed without the styles of its rows."""
    table = rmlab.matrix(make_scores(models=["a"]))
    latex, markdown = report.to_latex(table), report.to_markdown(table)
    for style, row in zip(table.index, latex.splitlines()[-6:-3], strict=True):
        assert row.startswith(f"{style} & ")
    assert [line.split()[1] for line in markdown.splitlines()[2:]] == [*table.index]
    header, *rows = report.to_csv(table).splitlines()
    assert header == "chosen_style,concise,plain,markdown"
    assert [row.split(",")[0] for row in rows] == [*table.index]


def test_a_caption_may_be_latex_and_columns_may_be_chosen(board):
    caption = r"\textbf{Ours} $> 0.5$, see \cref{fig:one}"
    columns = ["model", "hard", "overall"]
    text = report.to_latex(board, caption=caption, columns=columns)
    assert rf"\caption{{{caption}}}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert rows[0] == r"model & hard & overall \\"
    first = board.iloc[0]
    interval = f"({first['low']:.3f} to {first['high']:.3f})"
    assert f"{first['hard']:.3f} & {first['overall']:.3f} {interval}" in rows[1]
    with pytest.raises(rmlab.DataError, match=r"'overal'.*'overall'"):
        report.to_latex(board, columns=["model", "overal"])


def test_several_benchmarks_are_one_table_with_their_own_numbers(make_scores):
    sizes = dict.fromkeys(
        ("chat", "math", "code", "safety-refuse", "safety-response"), 8
    )
    first = make_scores(sizes, models=("a", "b", "c"), seed=1)
    second = reward_bench_2_scores(seed=5)
    third = metrics.pairs(first.assign(benchmark="own"))
    renamed = dict(zip(second["model"].unique()[:2], "ab", strict=True))
    second = second.assign(model=second["model"].map(renamed)).dropna(subset="model")
    board = report.compare_benchmarks([first, second, third]).set_index("model")
    for table in (first, second, third):
        name = table["benchmark"].iloc[0]
        summary = metrics.summary(table).set_index("model")[["overall", "low", "high"]]
        columns = [name, f"{name}_low", f"{name}_high"]
        pd.testing.assert_frame_equal(
            board.loc[summary.index, columns],
            summary.set_axis(columns, axis=1),
            check_exact=True,
        )
    assert {*board.index} == {*"abc"}
    assert board.loc["c", ["reward-bench-2", "mean_rank"]].isna().all()
    assert "reward-bench-2" in board.loc["c", "reason"]


def test_a_mean_rank_is_over_models_with_all_benchmarks():
    def table(benchmark, wins):
        outcomes = [
            ("win" if i < n else "loss") for n in wins.values() for i in range(10)
        ]
        models = [model for model in wins for _ in range(10)]
        rows = pd.DataFrame(
            {
                "model": models,
                "outcome": outcomes,
                "id": [*map(str, range(10))] * len(wins),
            }
        )
        return rows.assign(
            benchmark=benchmark, domain="d", chosen_slot=0, rejected_slot=0
        )

    tables = [
        table("x", {"a": 5, "b": 5, "c": 2, "absent": 9, "random": 7}),
        table("y", {"b": 4, "a": 3, "c": 8, "random": 1}),
    ]
    board = report.compare_benchmarks(pd.concat(tables))
    ranks = board.set_index("model")["mean_rank"]
    assert ranks[["a", "b", "c"]].tolist() == [2.0, 1.5, 2.0]
    assert ranks[["absent", "random"]].isna().all()
    assert board["model"].tolist()[0] == "b"


LONG = (
    "the template writes an end token and the model was trained without it, " * 4
    + "and so on"
)


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (
            pd.DataFrame(
                {"check": ["<i>"], "found": [LONG], "response": [LONG.upper()]}
            ),
            ["<i>", LONG, LONG.upper()],
        ),
        (
            pd.DataFrame({"share": [0.12345, np.nan], "p": [4e-5, 0.0]}),
            ["0.123", "4e-05", "0.000"],
        ),
        (pd.DataFrame({"x": range(200)}), ["0", "199"]),
        (
            pd.DataFrame(
                {"level": pd.Categorical(["easy", None])},
                index=pd.Index(["a", "b"], name="model"),
            ),
            ["model"],
        ),
        (pd.DataFrame(), []),
    ],
    ids=["long texts", "numbers", "many rows", "categories", "empty"],
)
def test_any_table_is_shown_whole(table, texts):
    html, plain = report.show(table)._repr_html_(), repr(report.show(table))
    for text in texts:
        assert escape_html(text) in html
        assert " ".join(text.split()[:3]) in plain
    assert html.count("<tr") == len(table) + 1
    assert not {"nan", "NaN", "None", "<NA>"} & {*re.findall(r"[<\w>]+", plain)}


def words_of(table):
    """Column names and cells of a shown table."""
    html = report.show(table)._repr_html_()
    names = re.findall(r"<th>(.*?)</th>", html)
    rows = [re.findall(r"<td>(.*?)</td>", row, re.S) for row in html.split("<tr>")[1:]]
    return names, [dict(zip(names, row, strict=True)) for row in rows]


def test_a_leaderboard_begins_with_the_place_and_the_score(board, scores):
    assert board.columns[:6].tolist() == [
        "rank",
        "model",
        "overall",
        "low",
        "high",
        "kind",
    ]
    assert board.columns[-3:].tolist() == ["rank_low", "rank_high", "group"]
    summary = metrics.summary(scores)
    assert board.columns[6:-3].tolist() == [
        name for name in summary if name not in board.columns[:6]
    ]


def test_what_is_shown_of_a_wide_table_has_ten_columns_with_the_numbers_that_matter(
    board, scores
):
    a, b = board["model"][:2]
    for table, needed in (
        (board, {"rank", "model", "overall", "chat", "hard"}),
        (metrics.summary(scores), {"model", "overall", "easy", "hard"}),
        (rmlab.estimates(scores), {"model", "quantity", "name", "value"}),
        (rmlab.compare(scores, a, b), {"model_a", "model_b", "difference", "p"}),
    ):
        names, rows = words_of(table)
        assert len(names) <= 10
        assert needed <= {*names}
        assert len(rows) == len(table)
        value = {*names} & {"overall", "value", "difference"}
        row = table.iloc[0]
        expected = [f"{row[name]:z.3f}" for name in (*value, "low", "high")]
        assert re.findall(r"-?\d\.\d+", rows[0][value.pop()]) == expected
    assert not re.search(r"\d\.\d{4,}", report.show(board)._repr_html_())


def test_the_reason_of_a_missing_score_is_shown_and_empty_columns_are_not(scores):
    part = scores[scores["domain"] != "math"]
    names, rows = words_of(rmlab.leaderboard(part))
    assert len(names) <= 10
    assert all("math" in row["reason"] for row in rows)
    assert "overall" not in names  # no model has one
    names, rows = words_of(rmlab.leaderboard(scores))
    assert "reason" not in names


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
    assert (
        set(
            re.findall(
                r'<[^>]*\s(?:src|href|action)="(?!#|data:|https://huggingface\.co/)([^"]*)"',
                page,
            )
        )
        == set()
    )
    assert set(re.findall(r"https?://[^/]+", page)) <= {"https://huggingface.co"}
    assert "default-src 'none'" in page
    assert "'sha256-" in page
    assert len(re.findall("<h2>", page)) == 3 + 3, (
        "three benchmarks with an explorer each"
    )
    assert page.count("How the models were scored") == 1, (
        "the provenance of mini, which alone has one"
    )


def test_the_command_writes_the_same_bytes(results, page, tmp_path):
    out = tmp_path / "r.html"
    result = CliRunner().invoke(
        cli.app, ["report", str(results), "--texts", "mini", "-o", str(out)]
    )
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert out.read_text() == page


def test_results_come_from_folders_globs_lists_and_tables(results, scores):
    assert [*read_results(results)[0]] == ["reward-bench-2", "mini", "reward-bench"]
    for source in (str(results / "m*.csv"), [results / "mini.csv"], scores):
        assert [*read_results(source)[0]] == ["mini"]


def test_tables_in_a_list_keep_the_provenance_of_each_model(mini):
    tables = [
        scoring.score(mini, [name], progress=False) for name in ("longest", "random")
    ]
    joined = read_results(tables).tables["mini"]
    assert {*joined.attrs["provenance"]} == {"longest", "random"}


def test_bad_input_is_named(tmp_path, scores, mini):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{")
    for name in "ab":
        io.write_scores(scores, tmp_path / "two" / f"{name}.csv")
    for source, out, options, message in (
        (tmp_path / "empty", "r.html", {}, "empty"),
        (tmp_path / "bad.json", "r.html", {}, r"bad\.json"),
        (tmp_path / "two", "r.html", {}, "key"),
        (scores, "r.html", {"texts": True}, "texts"),
        (scores, "r.tex", {}, "r.tex"),
    ):
        with pytest.raises(DataError, match=message):
            report.write_report(source, tmp_path / out, **options)
    assert not list(tmp_path.glob("r.*"))
    for table, options, message in (
        (pd.concat([scores, scores.assign(benchmark="other")]), {}, "2 benchmarks"),
        (metrics.pairs(reward_bench_2_scores()), {}, "best of four"),
        (scores, {"responses": mini.iloc[6:]}, "responses"),
    ):
        with pytest.raises(DataError, match=message):
            report.leaderboard(table, **options)


def test_texts_are_in_the_page_only_where_asked(page, mini, scores, tmp_path):
    """Also of texts without styles, which the scores have: it was a KeyError."""
    whole = write_page(
        scores, tmp_path, responses=mini.drop(columns="style"), texts=True
    )
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
    assert "longest" in page


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
    page = write_page(table, tmp_path)
    assert "owner/broken" in page
    assert "<img" in page
    board = report.leaderboard(table, common=None).set_index("model")
    alone = report.leaderboard(scores).set_index("model")
    assert np.isnan(board.loc["owner/broken", "overall"])
    assert board.loc["owner/broken", "reason"] != ""
    columns = ["overall", "low", "high", "group", "missing"]
    pd.testing.assert_frame_equal(board.loc[alone.index, columns], alone[columns])
