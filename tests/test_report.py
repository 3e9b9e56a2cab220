"""Leaderboards and comparisons in every format, and the report in one file that opens offline."""

import json
import re
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs
from typer.testing import CliRunner

import rmlab
from rmlab import baselines, benchmarks, cli, io, metrics, papers, report, scoring, toy
from rmlab.report.page import explorer_data
from rmlab.report.results import read_results
from rmlab.tables import KEY, DataError
from rmlab.text import escape_html
from rmlab.widgets.comparisons import Comparisons

NASTY = "owner/<script>alert(1)</script>|a_b&50%$x$#{~^}\\"
BAD = [
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>",
    "</script><script>window.hurt = 3</script><!-- <script> \u2028 alert(1) \u2029",
    "</div></div></table><svg onload='window.hurt = 4'></svg><a href='javascript:window.hurt=5'>x</a>",
]


@pytest.fixture(scope="module")
def mini():
    return benchmarks.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    models = [toy.scorer(mini, skill=k, style=s, name=f"owner/toy-{k}-{s}") for k in (0.5, 2.0) for s in (0.0, 1.0)]
    return scoring.score(mini, models, progress=False)


@pytest.fixture(scope="module")
def nasty(scores):
    """The scores of models of which one has a hostile name."""
    return scores.assign(model=scores["model"].replace({"owner/toy-2.0-0.0": NASTY}))


@pytest.fixture(scope="module")
def board(nasty):
    return report.leaderboard(nasty)


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
    assert drawn.attrs["provenance"] == scores.attrs["provenance"]
    assert drawn.loc[drawn["kind"] == "baseline", "model"].tolist() == ["random"]
    assert drawn.loc[drawn["kind"] == "baseline", "rank"].isna().all()
    full = report.leaderboard(scores, responses=mini)
    assert set(full.loc[full["kind"] == "baseline", "model"]) == set(baselines.NAMES)
    assert full["rank"].dropna().tolist() == [1, 2, 3, 4]
    longest = scoring.score(mini, ["longest"], progress=False)
    overall = metrics.summary(longest)["overall"].item()
    assert full.set_index("model").loc["longest", "overall"] == pytest.approx(overall)
    pd.testing.assert_frame_equal(report.leaderboard(metrics.pairs(scores), responses=mini), full)
    present = report.leaderboard(pd.concat([scores, longest]))
    assert present.loc[present["kind"] == "baseline", "model"].tolist() == ["longest"]


def test_latex_is_escaped_and_uses_booktabs(board):
    text = report.to_latex(board)
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    row = next(line for line in text.splitlines() if "script" in line)
    assert r"a\_b\&50\%\$x\$\#\{\textasciitilde{}\textasciicircum{}\}\textbackslash{}" in row
    columns = len(re.search(r"tabular}{(\w+)}", text)[1])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns - 1 for line in rows)
    assert r"\caption{A \& B}" in report.to_latex(board, caption="A & B")


def test_csv_reads_back_to_the_same_table(board, tmp_path):
    path = tmp_path / "deep" / "board.csv"
    assert report.to_csv(board, path) == path.read_text()
    table = pd.read_csv(path)
    np.testing.assert_allclose(table["overall"], board["overall"], rtol=1e-15)
    assert NASTY in table["model"].tolist()


def test_a_comparison_is_a_table_by_the_same_door(make_scores):
    names = ("chat", "math", "code", "safety-refuse", "safety-response")
    scores = make_scores(dict.fromkeys(names, 8), models=("a_1", "b&c", "longest"))
    one, every = rmlab.compare(scores, "a_1", "b&c"), rmlab.stats.compare_all(scores)
    text = report.to_latex(one)
    assert r"\label{tab:comparison}" in text
    assert r"a\_1 & b\&c & " in text
    assert f"{one['difference'][0]:+.3f} & {one['low'][0]:+.3f} to {one['high'][0]:+.3f}" in text
    assert report.to_latex(every).count(r" \\") == 1 + len(every)
    assert report.to_markdown(every).count("\n") == 2 + len(every)
    by_domain = report.to_latex(rmlab.compare(scores, "a_1", "b&c", by="domain"), caption="x", label="tab:x")
    assert r"\begin{tabular}{lllr" in by_domain
    assert report.to_csv(one).startswith("model_a,model_b,value_a")


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
        ("board", ["rank", "model", "random (baseline)", NASTY]),
    ],
    ids=["long texts", "numbers", "many rows", "one name twice", "categories", "messages", "empty", "leaderboard"],
)
def test_any_table_is_shown_whole_and_escaped(table, texts, board):
    table = board if isinstance(table, str) else table
    html, plain = report.show(table)._repr_html_(), repr(report.show(table))
    for text in texts:
        assert escape_html(text) in html
        assert " ".join(text.split()[:3]) in plain
    assert html.count("<tr") == len(table) + 1
    assert "<script>" not in html
    assert not {"nan", "NaN", "None", "<NA>"} & {*re.findall(r"[<\w>]+", plain)}


# The report


class Reader(HTMLParser):
    """Tags and addresses of a page."""

    def __init__(self):
        super().__init__()
        self.addresses, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]


@pytest.fixture(scope="module")
def results(tmp_path_factory, nasty):
    folder = tmp_path_factory.mktemp("results")
    io.write_scores(nasty, folder / "mini.csv")
    io.write_scores(reward_bench_2_scores(), folder / "deep" / "two.jsonl")
    io.write_pairs(reward_bench_pairs(), folder / "one.csv")
    return folder


@pytest.fixture(scope="module")
def page(results, tmp_path_factory, mini):
    out = tmp_path_factory.mktemp("out") / "report.html"
    assert report.write_report(results, out, responses=mini) == out
    return out


def test_the_report_needs_nothing_outside_itself(page):
    text, reader = page.read_text(), Reader()
    reader.feed(text)
    outside = {address for address in reader.addresses if not address.startswith(("#", "data:"))}
    models = {f"https://huggingface.co/owner/toy-{name}" for name in ("0.5-0.0", "0.5-1.0", "2.0-1.0")}
    data = {f"https://huggingface.co/datasets/allenai/reward-bench{end}" for end in ("", "-2")}
    assert outside == models | data
    assert reader.tags.count("script") == 1 + 3
    assert reader.tags.count("section") == 3 + 3
    assert reader.tags.count("img") == 3 + 2 + 3
    assert "alert(1)&lt;/script&gt;" in text
    assert "default-src 'none'" in text
    assert re.search(r"script-src &#39;sha256-|script-src 'sha256-", text)
    assert set(re.findall(r"https?://[^/]+", text)) == {"https://huggingface.co"}
    assert "How the models were scored" in text


def test_the_command_writes_the_same_bytes(results, page, tmp_path):
    out = tmp_path / "r.html"
    result = CliRunner().invoke(cli.app, ["report", str(results), "--texts", "mini", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == page.read_bytes()
    assert plt.get_fignums() == []
    assert result.stdout == ""
    wrong = CliRunner().invoke(cli.app, ["report", str(results), "--path", "x"])
    assert (wrong.exit_code, "--texts" in wrong.output) == (2, True)


def test_results_come_from_folders_globs_lists_and_tables(results, scores):
    tables, files, *_ = read_results(results)
    assert list(tables) == ["reward-bench-2", "mini", "reward-bench"]
    assert len(files) == 3
    assert "outcome" in tables["reward-bench"]
    assert list(read_results(str(results / "*.csv"))[0]) == ["mini", "reward-bench"]
    assert list(read_results([results / "mini.csv"])[0]) == list(read_results(scores)[0]) == ["mini"]


def test_bad_input_is_named(tmp_path, scores, results, mini):
    def write(source=scores, out="r.html", **options):
        return lambda: report.write_report(source, tmp_path / out, **options)

    (tmp_path / "empty").mkdir()
    (tmp_path / "store" / "abc").mkdir(parents=True)
    (tmp_path / "store" / "abc" / "1.records").write_text("")
    (tmp_path / "bad.json").write_text("{")
    for name in "ab":
        io.write_scores(scores, tmp_path / "two" / f"{name}.csv")
    for call, message in (
        (write(tmp_path / "empty"), "no result files there"),
        (write(tmp_path / "store"), "looks like a store"),
        (write(tmp_path / "bad.json"), r"bad\.json"),
        (write(tmp_path / "two"), "repeat a key"),
        (write(texts=True), "texts"),
        (write(text_limit=0.0), "text_limit: 0"),
        (write(out="r.tex"), "r.tex"),
        (lambda: report.leaderboard(pd.concat([scores, scores.assign(benchmark="other")])), "2 benchmarks"),
        (lambda: report.leaderboard(metrics.pairs(reward_bench_2_scores())), "best of four"),
        (lambda: report.leaderboard(scores, responses=mini.iloc[6:]), "no text in responses"),
        (lambda: report.to_latex(metrics.summary(scores)), "board: no column"),
    ):
        with pytest.raises(DataError, match=message):
            call()
    assert not list(tmp_path.glob("r.*"))


def test_the_data_of_a_page_cannot_end_its_element(mini, scores):
    names = {"domain": BAD[0], "subset": BAD[0], "benchmark": BAD[1]}
    own = mini.assign(response=[BAD[k % 3] + str(k) for k in range(len(mini))], **names).drop_duplicates(KEY)
    named = scores.assign(model=BAD[2] + scores["model"], **names).drop_duplicates(["model", *KEY])
    text = explorer_data(Comparisons(named, own), text_limit=1.0)["data"]
    assert not set("<>&\u2028\u2029") & set(text)
    payload, *lines = map(json.loads, text.split("\n"))
    assert set(payload["prompts"]["domain"]) == {BAD[0]}
    assert BAD[1].replace("\u2028", "\ufffd").replace("\u2029", "\ufffd") in lines[0]["answers"][1]["raw"]


def test_texts_are_in_the_page_only_where_asked_and_up_to_the_limit(page, mini, scores, tmp_path):
    answer = json.dumps(mini["response"].iloc[0][:40])[1:-1]
    text = report.write_report(scores, tmp_path / "r.html", responses=mini, texts=True).read_text()
    assert answer in text
    assert "With the texts of all 64 prompts" in text
    assert answer not in page.read_text()
    data = Comparisons(scores, mini)
    sample = explorer_data(data, text_limit=0.05)
    n_texts = sum(bool(json.loads(line)) for line in sample["data"].split("\n")[1:])
    assert 0 < n_texts < 64
    assert f"With the texts of {n_texts} of 64 prompts" in sample["note"]
    assert explorer_data(data, text_limit=0.05) == sample


def test_a_report_without_mathematics_falls_back_and_says_so(tmp_path):
    scores = papers.results("smollm2-rm-bench")
    text = report.write_report(scores, tmp_path / "r.html").read_text()
    assert "RM-Bench: chat, code, safety only" in text
    assert "nothing in math" in text
    overall = report.leaderboard(scores, average="domains")["overall"][0]
    assert f">{overall:.3f}</a>" in text
    assert text.count("<img") == 3


def test_the_prompts_of_thousands_of_models_are_left_out_with_a_word(scores, tmp_path, monkeypatch):
    monkeypatch.setattr("rmlab.report.page.MOST_ROWS", 100)
    text = report.write_report(scores, tmp_path / "r.html").read_text()
    assert "The prompts of 4 models are left out" in text
    assert "application/json" not in text
