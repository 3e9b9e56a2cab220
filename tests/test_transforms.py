"""Changes of style: one step changes one place, and code, lists and addresses stay as they are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmlab.styles import TRANSFORMS
from rmlab.styles.counts import features_of
from rmlab.styles.transforms import ASSURANCES, FILLERS, HEDGES

TEXT = (
    "Dr. Smith walked to the large house. He bought 3.5 litres of milk, e.g. for tea. Often he sings.\n\n"
    "```python\nlarge = 1. often\n```\n\nThe second paragraph starts here. It ends."
)


@pytest.mark.parametrize("change", TRANSFORMS.values(), ids=TRANSFORMS)
def test_no_steps_no_change_and_code_is_never_touched(change):
    assert change(TEXT, 0) == TEXT
    code = "```python\nlarge = 1. often\n```"
    assert code in change(TEXT) or change.name == "strip_markdown"
    assert change(TEXT, change.steps) == change(TEXT) != TEXT
    for steps in (-1, change.steps + 1):
        with pytest.raises(ValueError, match=f"steps={steps}: {change.name}"):
            change(TEXT, steps)


FIRST_TWO_STEPS = {  # what stands in the text after one step and after two
    "headings": (("## Answer\n\nDr. Smith",), ("## Answer\n\nDr. Smith", "## Explanation\n\nThe second")),
    "bold": (("**walked** to the",), ("**walked** to the", "**bought** 3.5")),
    "bullets": (
        ("- Dr. Smith walked to the large house.\n- He bought",),
        ("- The second paragraph starts here.\n- It",),
    ),
    "padding": ((f"It ends.\n\n{FILLERS[0]}",), (f"It ends.\n\n{FILLERS[0]} {FILLERS[1]}",)),
    "hedging": ((f"house. {HEDGES[0]} He",), (f"house. {HEDGES[0]} He", f"tea. {HEDGES[1]} Often")),
    "confidence": ((f"house. {ASSURANCES[0]} He",), (f"tea. {ASSURANCES[1]} Often",)),
    "emoji": (("house. 🙂 He",), ("house. 🙂 He", "tea. ✨ Often")),
    "synonyms": (("the big house.", "Frequently he", "paragraph begins"),),
    "spacing": (("house.  He", "e.g. for tea.  Often", "here.  It"),),
    "final_newline": (("It ends.\n",),),
    "strip_markdown": (("\n\nlarge = 1. often\n\n",),),
}


@pytest.mark.parametrize("name", FIRST_TWO_STEPS)
def test_each_step_changes_the_next_place(name):
    for steps, pieces in enumerate(FIRST_TWO_STEPS[name], 1):
        changed = TRANSFORMS[name](TEXT, steps)
        assert [piece for piece in pieces if piece not in changed] == []
        if steps == 1 and len(FIRST_TWO_STEPS[name]) == 2 and name != "padding":
            assert changed.endswith("\n\nThe second paragraph starts here. It ends.")


def test_steps_count_only_places_that_change():
    text = "It is so. A longer sentence is here. Another stands there."  # the first has no word to mark
    assert TRANSFORMS["bold"](text, 2) == "It is so. A longer **sentence** is here. **Another** stands there."
    assert TRANSFORMS["bold"]("Some **words** already.") == "Some **words** already."
    lists = "- one thing\n- another\n\n# Title here\n\n| a | b |\n\nA paragraph of words. Two of them."
    assert TRANSFORMS["bullets"](lists, 1) == lists.replace(
        "A paragraph of words. Two", "- A paragraph of words.\n- Two"
    )
    assert features_of(TRANSFORMS["emoji"]("One. Two. Three. Four. Five. Six. Seven."))["emoji"] == 5


def test_every_code_block_stays():
    fence = "```\nSome large words.\n\nOften so.\n```"
    text = f"Large words here.\n\n{fence}\n\nMore words here.\n\n{fence}\n\nOften so."
    for name in ("bold", "synonyms", "bullets"):
        assert TRANSFORMS[name](text).count(fence) == 2


def test_an_address_is_no_word_to_mark():
    text = "See https://example.org/a or example.org. Ask me@example.org!"
    assert TRANSFORMS["bold"](text) == text


@given(st.text(alphabet="aB. !?\n*#`-|_1", min_size=1, max_size=80), st.sampled_from(sorted(TRANSFORMS)))
def test_any_text_survives_every_change(text, name):
    assert TRANSFORMS[name](text)
    assert TRANSFORMS[name](text, 0) == text


def test_sentences_in_a_table_do_not_count_and_those_after_it_do():
    assert (
        features_of("One here.\n\n| a. | b. |\n|---|---|\n| It is. It was. | c |\n\nAfter it. Two.")["sentences"] == 3
    )


def test_synonyms_are_their_own_inverse():
    swap = TRANSFORMS["synonyms"]
    assert swap(swap(TEXT)) == TEXT
    assert re.findall("[Bb]ig", swap("Large and large, but `large` and large()")) == ["Big", "big"]
