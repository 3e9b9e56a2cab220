"""Loading benchmarks from files: what the tables hold, and what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from rmlab.benchmarks import load
from rmlab.benchmarks.reward_bench import SECTIONS, subset_of_item
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import KEY, STYLES, DataError

REWARD_BENCH = [subset for section in SECTIONS.values() for subset in section]


def row(number=1, **changes):
    made = {
        "id": number,
        "subset": "here",
        "prompt": f"Question {number}?",
        "chosen": [f"right {number}", f"It is right {number}.", f"**right** {number}"],
        "rejected": [f"wrong {number}", f"It is wrong {number}.", f"**wrong** {number}"],
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def put(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    """Five per-domain files with two prompts each."""
    for place, subset in enumerate(RM_BENCH):
        put(tmp_path / "five" / f"{subset}_filtered.json", [row(10 * place), row(10 * place + 1)])
    return tmp_path / "five"


def test_per_domain_files(folder):
    responses = load("rm-bench", path=folder)
    assert len(responses) == 5 * 2 * 6
    assert responses["subset"].drop_duplicates().tolist() == list(RM_BENCH)
    assert (responses["domain"] == responses["subset"].str.split("-").str[0]).all()
    assert set(responses["benchmark"]) == {"rm-bench"}
    assert set(responses["source"]) == {"here"}
    first = responses[:6]
    assert first["label"].tolist() == ["chosen"] * 3 + ["rejected"] * 3
    assert first["slot"].tolist() == [0, 1, 2] * 2
    assert first["style"].tolist() == list(STYLES) * 2
    assert first["response"].tolist() == row(0)["chosen"] + row(0)["rejected"]
    assert responses.attrs == {"missing_domains": []}


def test_total_file_gives_the_same_table(folder, tmp_path):
    rows = [
        {**r, "id": f"{subset}/{r['id']}", "domain": subset}
        for subset in sorted(RM_BENCH)
        for r in json.loads((folder / f"{subset}_filtered.json").read_text())
    ]
    expected = load("rm-bench", path=folder)
    total = put(tmp_path / "one" / "total_dataset.json", rows)
    pd.testing.assert_frame_equal(load("rm-bench", path=total), expected)
    pd.testing.assert_frame_equal(load("rm-bench", path=str(total.parent)), expected)
    lines = tmp_path / "lines.json"
    lines.write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    pd.testing.assert_frame_equal(load("rm-bench", path=lines), expected)
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + total.read_bytes())
    pd.testing.assert_frame_equal(load("rm-bench", path=marked), expected)


def test_missing_domains_are_named_and_not_invented(folder, caplog):
    (folder / "math_filtered.json").unlink()
    (folder / "safety-refuse_filtered.json").unlink()
    responses = load("rm-bench", path=folder)
    assert "rm-bench: no rows for math, safety-refuse" in caplog.text
    assert responses.attrs["missing_domains"] == ["math", "safety-refuse"]
    assert set(responses["subset"]) == {"chat", "code", "safety-response"}


def test_the_bundled_benchmark(caplog):
    responses = load("mini")
    assert not caplog.text
    prompts = responses.drop_duplicates(["subset", "id"])["subset"].value_counts()
    for subset, least in {"chat": 16, "math": 16, "code": 12, "safety-refuse": 8, "safety-response": 8}.items():
        assert prompts[subset] >= least
    assert set(responses["benchmark"]) == {"mini"}
    assert responses["note"].notna().all()
    assert len(responses) == 6 * prompts.sum() >= 6 * 60


def test_the_released_files(shared_data):
    responses = load("rm-bench", path=shared_data / "rm-bench")
    prompts = responses.drop_duplicates(["domain", "id"])
    assert len(prompts) == 798
    assert len(responses) == 4788
    counts = {"chat": 129, "code": 228, "safety-refuse": 284, "safety-response": 157}
    assert prompts["subset"].value_counts().to_dict() == counts
    assert responses.attrs == {"missing_domains": ["math"]}
    for subset in counts:
        raw = json.loads((shared_data / "rm-bench" / f"{subset}_filtered.json").read_text(encoding="utf-8"))
        mine = responses[responses["subset"] == subset]
        texts = [text for r in raw for text in r["chosen"] + r["rejected"]]
        assert mine["response"].tolist() == texts
        assert mine["id"].tolist() == [str(r["id"]) for r in raw for _ in range(6)]
        assert mine["source"].tolist() == [r["subset"] for r in raw for _ in range(6)]
    assert (responses["error"].notna() == (responses["domain"] == "chat")).all()


ODD = {
    "emoji": "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}\N{WOMAN}",
    "white space": " \n\t ",
    "line separators": "a\u2028b\x85c\r\nd",
    "looks missing": "nan",
    "null character": "a\0b",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("lines", [False, True])
def test_odd_but_legal_text_passes_unchanged(tmp_path, text, lines):
    file = tmp_path / "chat_filtered.json"
    one, two = row(1, prompt=text, chosen=[text] * 3), row(2, prompt=text, rejected=[text] * 3)
    dumped = [json.dumps(r, ensure_ascii=False) for r in (one, two)]
    file.write_text("\n".join(dumped) if lines else f"[{','.join(dumped)}]", encoding="utf-8", newline="")
    responses = load("rm-bench", path=file)
    assert set(responses["prompt"]) == {text}
    assert responses["response"].tolist()[:3] == [text] * 3
    assert responses["response"].tolist()[9:] == [text] * 3


BAD_ROWS = {
    "no chosen": (row(chosen=...), r"row 1 \(id 1\): 'chosen' must be .*3 of them"),
    "four responses": (
        row(chosen=["a", "b", "c", "d"]),
        r"'chosen' must be .*3 of them; it has \['a', 'b', 'c'",
    ),
    "a number": (row(chosen=["a", 5, "c"]), r"'chosen' must be non-empty strings.*\['a', 5, 'c'\]"),
    "no prompt": (row(prompt=...), r"'prompt' must be a string"),
    "fraction as id": (row(id=1.5), r"'id' must be a whole number.*has 1.5"),
    "repeated id": (row(0), r"row 1 .*'id' must be unique within the domain 'chat'; it has 0"),
    "unknown domain": (row(domain="chatt"), r"'domain' must be a domain .*; it has 'chatt'; .*'chat'\?"),
    "not an object": ("text", r"row 1 is 'text'"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_refused(folder, bad, message):
    file = put(folder / "chat_filtered.json", [row(0), bad])
    with pytest.raises(DataError, match=message) as caught:
        load("rm-bench", path=folder)
    assert str(file) in str(caught.value)


def test_the_two_safety_files_share_a_domain(folder):
    shutil.copy(folder / "safety-refuse_filtered.json", folder / "safety-response_filtered.json")
    with pytest.raises(DataError, match=r"safety-response.*row 0 .*'id' must be unique within the domain 'safety'"):
        load("rm-bench", path=folder)


BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "no rows": (b"[]", "no rows"),
    "cut off": (json.dumps([row(1)]).encode()[:-30], r"line 1 column \d+"),
    "cut off lines": (b'{"id": 1}\n{"id": 2}\n{"id', "line 3: "),
    "latin 1": ('[{"id": 1, "prompt": "\xe9"}]'.encode("latin-1"), r"not UTF-8 text \(byte 22\)"),
    "half an emoji": (b'[{"id": 1, "prompt": "so \\ud83d"}]', "row 0: .* holds half of a surrogate pair"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused(tmp_path, content, message):
    file = tmp_path / "chat_filtered.json"
    file.write_bytes(content)
    for name in ("rm-bench", "reward-bench-2"):
        with pytest.raises(DataError, match=message) as caught:
            load(name, path=file)
        assert str(file) in str(caught.value)


def test_bad_places(tmp_path, folder):
    with pytest.raises(DataError, match=r"chat_filterd.json: no such file.*chat_filtered.json"):
        load("rm-bench", path=folder / "chat_filterd.json")
    with pytest.raises(DataError, match=r"chat.json: no such file"):
        load("rm-bench", path=tmp_path / "nowhere" / "chat.json")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"none of chat_filtered.json, .* in this folder"):
        load("rm-bench", path=tmp_path / "other")
    with pytest.raises(DataError, match=r"expected one data file in this folder, found 0"):
        load("reward-bench", path=tmp_path / "other")
    with pytest.raises(DataError, match=r"mine.json: no field 'domain' in row 0; name the file one of .*chat_fil"):
        load("rm-bench", path=put(tmp_path / "mine.json", [row(1)]))
    with pytest.raises(DataError, match=r"unknown benchmark 'rm_bench'; allowed: .*did you mean 'rm-bench'\?"):
        load("rm_bench")


def rb2(number=1, **changes):
    made = {
        "id": str(number),
        "prompt": "Which?",
        "chosen": ["a"],
        "rejected": ["b", "c", "d"],
        "subset": "Focus",
        "num_correct": 1,
        "num_incorrect": 3,
        "total_completions": 4,
        "additional_metadata": None,
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def rb1(number=395, **changes):
    made = {"id": number, "prompt": "Which?", "chosen": "a", "rejected": "b", "subset": "llmbar-natural"}
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def test_reward_bench_2(tmp_path):
    rows = [
        rb2(1),
        rb2("ref:1", subset="ties", rejected=["b"], total_completions=2),
        rb2("tied:1", subset="Ties", chosen=["a", "A"], num_correct=2, total_completions=5),
    ]
    responses = load("reward-bench-2", path=put(tmp_path / "x.json", rows))
    assert responses["subset"].tolist() == responses["domain"].tolist() == ["Focus"] * 4 + ["Ties"] * 7
    assert responses["style"].isna().all()
    assert responses[responses["id"] == "tied:1"][["label", "slot", "response"]].values.tolist() == [
        ["chosen", 0, "a"],
        ["chosen", 1, "A"],
        ["rejected", 0, "b"],
        ["rejected", 1, "c"],
        ["rejected", 2, "d"],
    ]
    assert not responses.duplicated(KEY).any()
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pd.testing.assert_frame_equal(load("reward-bench-2", path=tmp_path / "x.jsonl"), responses)


def test_reward_bench_1(tmp_path):
    file = put(tmp_path / "x.json", [rb1(395), rb1(2538, subset="math-prm"), rb1(7, subset="shp")])
    responses = load("reward-bench", path=file)
    assert responses["domain"].tolist() == ["llmbar-natural"] * 2 + ["math-prm"] * 2 + ["shp"] * 2
    assert responses["response"].tolist() == ["a", "b"] * 3
    assert responses["id"].tolist() == ["395"] * 2 + ["2538"] * 2 + ["7"] * 2


def test_reward_bench_items_are_in_the_subsets_that_the_items_name(shared_data):
    items = pd.read_csv(shared_data / "rewardbench" / "item_content.torch_measure.csv", dtype=str)
    named = items["content"].str.extract(r"^\[(.*?)\]")[0]
    assert [subset_of_item(item) for item in items["item_id"]] == named.tolist()
    assert set(named) == set(REWARD_BENCH)
    assert np.isin(["-1", "2985", "x", ""], items["item_id"]).sum() == 0
    assert [subset_of_item(item) for item in ("-1", "2985", "x", "")] == [None] * 4
