"""The report's page: data that cannot end its element, texts where asked, falls back where parts are missing."""

import json
import re
import time

import numpy as np
import pandas as pd
import pytest

from rmlab import benchmarks, papers, report, scoring, toy
from rmlab.report.page import explorer_data
from rmlab.tables import DataError
from rmlab.widgets.comparisons import Comparisons

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
    models = [toy.scorer(mini, skill=k, style=s, name=f"owner/toy-{k}-{s}") for k, s in ((0.5, 0.0), (2.0, 1.0))]
    return scoring.score(mini, models, progress=False)


@pytest.fixture(scope="module")
def page(tmp_path_factory, mini, scores):
    path = tmp_path_factory.mktemp("page") / "r.html"
    return report.write_report(scores, path, responses=mini, texts=True).read_text()


def test_the_data_of_a_page_cannot_end_its_element(mini, scores):
    names = {"domain": BAD[0], "subset": BAD[0], "benchmark": BAD[1]}
    own = mini.assign(response=[BAD[k % 3] + str(k) for k in range(len(mini))], **names)
    named = scores.assign(model=BAD[2] + scores["model"], **names)
    key = ["benchmark", "domain", "id", "label", "slot"]
    own, named = own.drop_duplicates(key), named.drop_duplicates(["model", *key])
    text = explorer_data(Comparisons(named, own), text_limit=1.0)["data"]
    assert not set("<>&\u2028\u2029") & set(text)
    payload, *lines = map(json.loads, text.split("\n"))
    assert set(payload["prompts"]["domain"]) == {BAD[0]}
    assert BAD[1].replace("\u2028", "\ufffd").replace("\u2029", "\ufffd") in lines[0]["answers"][1]["raw"]


def test_texts_are_in_the_page_only_where_asked_and_up_to_the_limit(page, mini, scores, tmp_path):
    answer = json.dumps(mini["response"].iloc[0][:40])[1:-1]
    assert answer in page
    assert "With the texts of all 64 prompts" in page
    plain = report.write_report(scores, tmp_path / "r.html", responses=mini).read_text()
    assert answer not in plain
    assert "Without texts" in plain
    data = Comparisons(scores, mini)
    sample = explorer_data(data, text_limit=0.05)
    lines = [json.loads(line) for line in sample["data"].split("\n")[1:]]
    has_texts = np.array([bool(line) for line in lines])
    assert 0 < has_texts.sum() < 64
    assert f"With the texts of {has_texts.sum()} of 64 prompts" in sample["note"]
    assert explorer_data(data, text_limit=0.05) == sample


@pytest.mark.parametrize(
    ("options", "message"),
    [({"texts": True}, "texts"), ({"text_limit": 0.0}, "text_limit: 0"), ({"out": "r.tex"}, "r.tex")],
)
def test_options_that_make_no_page_are_refused(scores, tmp_path, options, message):
    out = tmp_path / options.pop("out", "r.html")
    with pytest.raises(DataError, match=message):
        report.write_report(scores, out, **options)
    assert not out.exists()


def test_a_report_without_mathematics_falls_back_and_says_so(tmp_path):
    scores = papers.results("smollm2-rm-bench")
    text = report.write_report(scores, tmp_path / "r.html").read_text()
    assert "RM-Bench: chat, code, safety only" in text
    assert "nothing in math" in text
    overall = report.leaderboard(scores, average="domains")["overall"][0]
    assert f">{overall:.3f}</a>" in text
    assert text.count("<img") == 3


def test_provenance_and_definitions_stand_on_the_page(page):
    assert "How the models were scored" in page
    assert "hard: the rejected answer has the fancier one" in page
    assert 'rel="noopener noreferrer" href="https://huggingface.co/owner/toy-2.0-1.0"' in page
    assert re.search(r"script-src &#39;sha256-|script-src 'sha256-", page)


def test_the_prompts_of_thousands_of_models_are_left_out_with_a_word(scores, tmp_path, monkeypatch):
    monkeypatch.setattr("rmlab.report.page.MOST_ROWS", 100)
    text = report.write_report(scores, tmp_path / "r.html").read_text()
    assert "The prompts of 2 models are left out" in text
    assert "application/json" not in text


def test_a_page_of_1327_prompts_and_ten_models_is_made_in_seconds(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"chat": 129, "math": 529, "code": 228, "safety": 441}
    rows = [
        ("rm-bench", domain, str(number), label, slot, style)
        for domain, n in sizes.items()
        for number in range(n)
        for label in ("chosen", "rejected")
        for slot, style in enumerate(("concise", "plain", "markdown"))
    ]
    keys = pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "style"])
    keys["subset"] = keys["domain"].replace({"safety": "safety-refuse"})
    scores = pd.concat([keys.assign(model=f"m{k}", score=rng.normal(size=len(keys))) for k in range(10)])
    start = time.process_time()
    path = report.write_report(scores, tmp_path / "r.html")
    assert time.process_time() - start < 40
    assert path.stat().st_size < 10 * 2**20
