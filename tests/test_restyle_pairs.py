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


def pairs(chosen=LONG, rejected=OTHER, id_="0"):
    key = {"benchmark": "mine", "domain": "d", "id": id_, "prompt": "?"}
    rows = [key | {"label": "rejected", "slot": 0, "response": rejected}]
    rows += [
        key | {"label": "chosen", "slot": slot, "response": text}
        for slot, text in enumerate([chosen] if isinstance(chosen, str) else chosen)
    ]
    return pd.DataFrame(rows)


def restyle_text(text):
    """The three versions of a text, by style."""
    rows = restyle_pairs(pairs(chosen=text)).responses.query("label == 'chosen'")
    return dict(zip(rows["style"].astype(str), rows["response"], strict=True))


def test_a_plain_text_gets_a_concise_and_a_markdown_version():
    versions = restyle_text(LONG)
    assert versions["plain"] == LONG
    assert versions["concise"] == "It opens at 9 in the morning. They are not late."
    assert versions["markdown"].startswith("**It opens at 9 in the morning.**\n\n- Trains run often.\n- They are")
    assert " ".join(plain(versions["markdown"]).split()) == LONG
    two = restyle_text(f"{LONG}\n\nOne thing is this. Another is that.")["markdown"]
    assert two.endswith("\n\n- One thing is this.\n- Another is that.")


def test_a_markdown_text_gets_a_plain_and_a_concise_version():
    marked = "## Hours\n\nIt opens at **9**. Bring a coat.\n\n- It is `free`.\n- No dogs."
    versions = restyle_text(marked)
    assert versions["markdown"] == marked
    assert versions["plain"] == plain(marked)
    assert features_of(versions["plain"])["markdown"] == 0
    assert versions["concise"] == "Hours.\n\nIt opens at 9.\n\nIt is free.\nNo dogs."
    rules = restyle_pairs(pairs(chosen=marked)).responses.query("label == 'chosen'").set_index("style")["rule"]
    assert rules[["markdown", "plain"]].tolist() == ["as given", "plain from Markdown"]


def test_code_stays_whole():
    versions = restyle_text(CODE)
    for style in ("concise", "plain"):
        assert "for i in range(3):\n    print(i)" in versions[style]
    assert "Well done" not in versions["concise"]
    versions = restyle_text(f"Here is how it goes in C. It is short.\n\n{C_CODE}\n\nEnjoy.")
    for line in ("#include <stdio.h>", "// prints", "    return 0;"):
        assert line in versions["concise"]
        assert line in versions["markdown"]
    assert "Enjoy" not in versions["concise"]


def test_the_result_is_a_three_style_benchmark_marked_as_rule_made():
    frame = restyle_pairs(pairs(chosen=[LONG, LONG + " Or two."])).responses
    pd.testing.assert_frame_equal(tables.check_responses(frame), frame)
    assert set(frame["benchmark"]) == {"mine (restyled by rule)"}
    assert frame["rule"].notna().all()
    chosen = frame[frame["label"] == "chosen"]
    assert chosen["slot"].tolist() == [0, 1, 2, 3, 4, 5]
    assert chosen["style"].tolist() == list(tables.STYLES) * 2
    matrix = metrics.matrix(metrics.pairs(scoring.score(frame, ["longest"], progress=False)))
    assert matrix.notna().all(axis=None)
    assert matrix.loc["concise", "markdown"] == 0


@pytest.mark.parametrize(
    ("text", "style", "reason"),
    [
        ("Nine.", "concise", "shorter"),
        ("It is not 3. It is never 4.", "concise", "shorter"),
        ("Say _one_one_ and *two*: `a_b_`, ``x`y``. Fine. Good.", "plain", "_one_one_"),
    ],
)
def test_what_cannot_be_done_safely_is_reported_with_its_reason(text, style, reason):
    made = restyle_pairs(pd.concat([pairs(chosen=text), pairs(id_="good")]))
    assert set(made.responses["id"]) == {"good"}
    report = made.report.set_index("style")
    assert set(report["label"]) == {"chosen"}
    assert reason in report.loc[style, "reason"]


def test_bad_input_is_named():
    with pytest.raises(DataError, match="style"):
        restyle_pairs(pairs().assign(style="plain"))
    with pytest.raises(DataError, match="no prompt"):
        restyle_pairs(pairs("Yes.", "No."))


def _check_kept(text, versions):
    """Numbers, negations and code blocks of a text stand in all of its versions, as often as in it."""
    for version in versions:
        for pattern in (r"\d+(?:[.,:/]\d+)*", r"\b(?:not|no|never|without|cannot)\b|n['’]t\b"):
            assert Counter(re.findall(pattern, version.lower())) == Counter(re.findall(pattern, text.lower())), version
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            assert all(line.strip() in version for line in block.splitlines())


def test_real_pairs_keep_numbers_negations_and_code(shared_data):
    original = benchmarks.load_pairs(shared_data / "rewardbench" / "llmbar_419.jsonl")
    made = restyle_pairs(original)
    frames = (original, made.responses, made.report)
    n_prompts, n_restyled, n_refused = (frame.groupby(["domain", "id"]).ngroups for frame in frames)
    assert n_restyled + n_refused == n_prompts
    assert n_restyled > 0.35 * n_prompts, "answers of one sentence have no concise version"
    texts = original.set_index(["id", "label"])["response"]
    for key, rows in made.responses.groupby(["id", "label"], observed=True):
        _check_kept(texts[key], rows["response"])
        n_words = rows.set_index("style")["response"].str.split().str.len()
        assert n_words["concise"] < n_words["plain"]
