"""Three styles by rule: what every text keeps, what is left out and why, and that nothing is changed silently."""

import re
from collections import Counter

import pandas as pd
import pytest

from rmlab import benchmarks, metrics, scoring, tables
from rmlab.styles.counts import features_of
from rmlab.styles.prose import plain
from rmlab.styles.rules import restyle_pairs
from rmlab.tables import DataError

LONG = "It opens at 9 in the morning. Trains run often. They are not late. Bring a coat."
OTHER = "It opens at noon, they say. Trains run often. Some are late. Bring a hat."
LOOP = "```python\nfor i in range(3):\n    print(i)\n```"
CODE = f"Use a loop to add them up. That is simple.\n\n{LOOP}\n\nIt prints. Well done."
C_CODE = "#include <stdio.h>\n\n// prints\n\nint main() {\n    return 0;\n}"


def pairs(chosen=LONG, rejected=OTHER, n=1, **more):
    sides = {"chosen": chosen if isinstance(chosen, list) else [chosen], "rejected": [rejected]}
    rows = [
        {
            "benchmark": "mine",
            "domain": "d",
            "id": str(i),
            "label": label,
            "slot": slot,
            "prompt": "?",
            "response": text,
        }
        for i in range(n)
        for label, texts in sides.items()
        for slot, text in enumerate(texts)
    ]
    return pd.DataFrame(rows).assign(**more)


def texts(made, label="chosen"):
    rows = made.responses[made.responses["label"] == label]
    return dict(zip(rows["style"].astype(str), rows["response"], strict=True))


def test_a_plain_text_gets_a_concise_and_a_markdown_version():
    found = texts(restyle_pairs(pairs()))
    assert found["plain"] == LONG
    assert found["concise"] == "It opens at 9 in the morning. They are not late."
    assert found["markdown"].startswith("**It opens at 9 in the morning.**\n\n- Trains run often.\n- They are")
    assert " ".join(plain(found["markdown"]).split()) == LONG


def test_a_markdown_text_gets_a_plain_and_a_concise_version():
    marked = "## Hours\n\nIt opens at **9**. Bring a coat.\n\n- It is `free`.\n- No dogs."
    made = restyle_pairs(pairs(chosen=marked))
    found = texts(made)
    assert found["markdown"] == marked
    assert found["plain"] == plain(marked)
    assert features_of(found["plain"])["markdown"] == 0
    assert found["concise"] == "Hours.\n\nIt opens at 9.\n\nIt is free.\nNo dogs."
    rules = made.responses.set_index("style")["rule"].groupby("style", observed=True).first()
    assert rules["markdown"] == "as given"
    assert rules["plain"] == "plain from Markdown"


def test_code_stays_whole():
    found = texts(restyle_pairs(pairs(chosen=CODE)))
    assert "for i in range(3):\n    print(i)" in found["concise"]
    assert "for i in range(3):\n    print(i)" in found["plain"]
    assert "Well done" not in found["concise"]
    found = texts(restyle_pairs(pairs(chosen=f"Here is how it goes in C. It is short.\n\n{C_CODE}\n\nEnjoy.")))
    for line in ("#include <stdio.h>", "// prints", "    return 0;"):
        assert line in found["concise"]
        assert line in found["markdown"]
    assert "Enjoy" not in found["concise"]


def test_the_result_is_a_three_style_benchmark_marked_as_rule_made():
    made = restyle_pairs(pairs(chosen=[LONG, LONG + " Or two."], n=2))
    frame = tables.check_responses(made.responses)
    assert set(frame["benchmark"]) == {"mine (restyled by rule)"}
    assert "rule" in frame.columns
    assert frame["rule"].notna().all()
    chosen = frame[(frame["label"] == "chosen") & (frame["id"] == "0")]
    assert chosen["slot"].tolist() == [0, 1, 2, 3, 4, 5]
    assert chosen["style"].tolist() == list(tables.STYLES) * 2
    matrix = metrics.matrix(metrics.pairs(scoring.score(frame, ["longest"], progress=False)))
    assert matrix.notna().all(axis=None)
    assert matrix.loc["concise", "markdown"] == 0


@pytest.mark.parametrize(
    ("text", "style", "reason"),
    [
        ("Nine.", "concise", "cannot be shorter"),
        ("It is not 3. It is never 4.", "concise", "cannot be shorter"),
        ("See ![chart](a.png) of `a*b*c`. It is good. Yes.", "plain", ""),
        ("Say _one_one_ and *two*: `a_b_`, ``x`y``. Fine. Good.", "plain", ""),
        ("A * B. So it goes. And so * on.", "markdown", ""),
    ],
)
def test_what_cannot_be_done_safely_is_reported_with_its_reason(text, style, reason):
    both = pd.concat([pairs(chosen=text), pairs().assign(id="good")])
    made = restyle_pairs(both)
    bad = made.report[made.report["id"] == "0"]
    if len(bad):
        assert set(made.responses["id"]) == {"good"}
        assert (bad["label"] == "chosen").all()
        assert not reason or (style in set(bad["style"]) and bad["reason"].str.contains(reason).any())
    else:
        assert not reason
        _check_kept(text, made.responses[made.responses["id"] == "0"])


def test_bad_input_is_named():
    with pytest.raises(DataError, match="have styles already"):
        restyle_pairs(pairs(style="plain"))
    with pytest.raises(DataError, match="no prompt could be restyled safely; texts by reason"):
        restyle_pairs(pairs("Yes.", "No."))


def _check_kept(text, rows):
    """Numbers, negations and code blocks of a text stand in all of its versions, as often as in it."""
    for version in rows["response"]:
        for pattern in (r"\d+(?:[.,:/]\d+)*", r"\b(?:not|no|never|without|cannot)\b|n['’]t\b"):
            assert Counter(re.findall(pattern, version.lower())) == Counter(re.findall(pattern, text.lower())), version
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                assert line.strip() in version


@pytest.mark.parametrize("name", ["llmbar_419.jsonl"])
def test_real_pairs_keep_numbers_negations_and_code(shared_data, name):
    given = benchmarks.load_pairs(shared_data / "rewardbench" / name)
    made = restyle_pairs(given)
    n = given.groupby(tables.PROMPT).ngroups
    kept = made.responses.groupby(tables.PROMPT).ngroups
    assert kept + made.report.groupby(tables.PROMPT).ngroups == n
    assert kept > 0.35 * n, "answers of one sentence have no concise version"
    original = given.set_index(["id", "label"])["response"]
    for (id_, label), rows in made.responses.groupby(["id", "label"], observed=True):
        _check_kept(original[(id_, label)], rows)
        sizes = rows.set_index("style")["response"].str.split().str.len()
        assert sizes["concise"] < sizes["plain"]
