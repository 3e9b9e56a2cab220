"""Two runs of one reward model: every cause that is injected is named, and none where
there is none.
"""

import numpy as np
import pytest
import torch
from fakes import toy_responses
from served_models import oracle, sigmoid

import rmlab
from rmlab import toy
from rmlab.checks import parity_items
from rmlab.checks.parity import EXACT, HALF

TEXTS = toy_responses(prompts=12, slots=2)


class World:
    """A tiny reward model, its right scores, and what any misreading of its texts gives
    by transformers itself.
    """

    def __init__(self, folder):
        self.folder, self.model, self.score_ids = (
            folder,
            rmlab.classifier(folder, device="cpu"),
            oracle(folder),
        )
        self.right = self.score(self.model)
        self.words = self.model.tokenizer
        self.ids = self.read(self.model)

    def read(self, model):
        return [
            ids.tolist()
            for ids in model.prepare(
                TEXTS["prompt"].tolist(), TEXTS["response"].tolist()
            ).ids
        ]

    def score(self, model):
        return rmlab.score(TEXTS, model).assign(model="served")

    def table(self, scores):
        return self.right.assign(score=np.asarray(scores, np.float64))

    def misread(self, change, ids=None):
        """Scores of a run that reads each text as `change(ids)`."""
        return self.table([self.score_ids(change(text))[0] for text in ids or self.ids])

    def cause(self, table, **options):
        """The word that names the cause."""
        rows = rmlab.parity(self.right, table, TEXTS, model=self.model, **options)
        return rows.set_index("check").loc["cause", "found"].partition(":")[0]


@pytest.fixture(scope="module")
def world(zoo):
    return World(zoo(initializer_range=0.4))


def half(scores, dtype=torch.bfloat16):
    return torch.tensor(np.asarray(scores)).to(dtype).double().numpy()


def test_a_misreading_of_the_tokens_is_named(world):
    bos, eos = world.words.bos_token_id, world.words.eos_token_id
    for cause, change in [
        ("double bos", lambda ids: [bos, *ids]),
        ("missing bos", lambda ids: ids[1:]),
        ("eos", lambda ids: ids[:-1]),
        ("eos", lambda ids: [*ids, eos]),
        ("truncation", lambda ids: ids[:64]),
        ("truncation", lambda ids: ids[-64:]),
        ("truncation", lambda ids: [*ids[:1], *ids[1:][-31:]]),
        ("none", lambda ids: ids),
    ]:
        assert world.cause(world.misread(change)) == cause
    for dtype in (torch.bfloat16, torch.float16):
        twice = half(world.misread(lambda ids: [bos, *ids])["score"], dtype)
        assert world.cause(world.table(twice)) == "double bos", (
            "half precision does not hide another cause"
        )


def test_another_template_tokenizer_or_model_is_named_where_it_is_tried(
    world, zoo, tmp_path
):
    unheard_of = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    names = ["raw", "zephyr", "vicuna", "llama-2", "tulu", "oasst", "mistral"]
    templates = [
        (template, "template")
        for template in [toy.models.CHAT_TEMPLATES["chatml"], *names]
    ]
    for template, cause in [*templates, (unheard_of, "unknown")]:
        assert (
            world.cause(
                world.score(
                    rmlab.classifier(world.folder, template=template, device="cpu")
                )
            )
            == cause
        )
    words = toy.tokenizer(
        ["Another text to learn other pieces from, with other words and numbers 1234."]
        * 3
    )
    folder = toy.save_model(
        tmp_path / "m", words=words, vocab_size=len(world.words), initializer_range=0.4
    )
    table = world.misread(
        lambda ids: ids, world.read(rmlab.classifier(folder, device="cpu"))
    )
    assert world.cause(table) == "unknown"
    assert world.cause(table, tokenizers=[words]) == "tokenizer"
    assert (
        world.cause(world.score(rmlab.classifier(zoo(seed=1, initializer_range=0.4))))
        == "unknown"
    )


@pytest.mark.parametrize("is_masked", [True, False])
def test_padding_read_as_the_end_is_named(world, is_masked):
    """A server pads a batch at the right and reads its last position."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(world.folder).eval()
    pad, scores = world.words.pad_token_id, []
    for start in range(0, len(world.ids), 4):
        batch = world.ids[start : start + 4]
        longest = max(map(len, batch))
        ids = torch.tensor([text + [pad] * (longest - len(text)) for text in batch])
        mask = (
            torch.arange(longest) < torch.tensor([len(text) for text in batch])[:, None]
        ).long()
        with torch.inference_mode():
            states = model.model(
                input_ids=ids,
                attention_mask=mask if is_masked else torch.ones_like(mask),
            )
            scores += model.score(states.last_hidden_state[:, -1])[:, 0].tolist()
    assert world.cause(world.table(scores)) == "padding"


def test_an_end_token_taken_for_padding_is_named(tmp_path):
    words = toy.tokenizer()
    words.pad_token = words.eos_token
    folder = toy.save_model(tmp_path / "m", words=words, initializer_range=0.4)
    world = World(folder)
    # transformers reads the token before the end token, vLLM the end token.
    assert world.cause(world.misread(lambda ids: ids)) == "none"
    last = world.score(rmlab.classifier(folder, pooling="last"))
    assert world.cause(last) == "pooling"
    rows = rmlab.parity(last, world.right, TEXTS, model=folder).set_index("check")
    assert "pooling='last'" in rows.loc["cause", "remedy"]


def test_what_the_numbers_show_is_named(world):
    right = world.right["score"].to_numpy()
    squashed, noise = (
        np.array([*map(sigmoid, right)]),
        right.std() * np.random.default_rng(0).normal(size=len(right)),
    )
    for scores, cause in [
        (squashed, "sigmoid"),
        (half(squashed), "sigmoid"),
        (np.ones(len(right)), "softmax"),
        (2.5 * right - 1, "scale"),
        (np.roll(right, 1), "order"),
        (right + 1e-5 * noise, "none"),
        (right + 0.02 * noise, "unknown"),
    ]:
        assert world.cause(world.table(scores)) == cause
    rows = rmlab.parity(world.table(squashed), world.right).set_index("check")
    assert rows.loc["cause", "found"].startswith("sigmoid"), (
        "whichever run is the wrong one"
    )


@pytest.mark.parametrize("part", ["head", "model"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_that_was_computed_in_is_named(world, dtype, part):
    """Scores whose head, or whole model, transformers computed in half precision."""
    from transformers import AutoModelForSequenceClassification

    of_model = dtype if part == "model" else torch.float32
    model = AutoModelForSequenceClassification.from_pretrained(
        world.folder, dtype=of_model
    ).eval()
    with torch.inference_mode():
        states = [
            model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
            for ids in world.ids
        ]
        weights = model.score.weight.to(dtype)
        table = world.table(
            [
                torch.nn.functional.linear(state.to(dtype), weights).item()
                for state in states
            ]
        )
    rows = rmlab.parity(world.right, table, TEXTS, model=world.model).set_index("check")
    error, cause = rows.loc["error", "value"], rows.loc["cause", "found"]
    if error > HALF:  # a whole model in bfloat16: no cause is made up
        assert (dtype, part) == (torch.bfloat16, "model")
        assert cause.startswith("unknown: ")
    elif error > EXACT:
        assert cause.startswith(
            f"half precision: all scores are {str(dtype).removeprefix('torch.')} "
            "numbers"
        )
        assert (
            rmlab.parity(table, world.right, TEXTS, model=world.model).iloc[-1]["found"]
            == cause
        )
    else:
        assert (dtype, part) == (torch.float16, "head")
        assert cause.startswith("none")


def test_errors_flips_and_near_ties_are_counted(world):
    right = world.right["score"].to_numpy()
    wrong = world.table(right + 100 * right.std() * (np.arange(len(right)) == 0))
    rows = rmlab.parity(world.right, wrong).set_index("check")
    assert rows.loc["error", "value"] == pytest.approx(100)
    errors = parity_items(world.right, wrong)["error"]
    assert errors.abs().round(9).tolist() == [100.0] + [0.0] * (len(right) - 1)
    margins = [rmlab.pairs(table)["margin"] for table in (world.right, wrong)]
    assert (
        rows.loc["flips", "value"] == (np.sign(margins[0]) != np.sign(margins[1])).sum()
    )
    line = (
        rmlab.parity(world.right, world.table(2 * right + 3))
        .set_index("check")
        .loc["line"]
    )
    assert line["value"] == pytest.approx(2)
    assert "offset 3" in line["found"]
    ties = rmlab.parity(
        world.right, world.table(np.round(right / (5 * right.std())))
    ).set_index("check")
    assert "become ties" in ties.loc["flips", "found"]
    assert ties.loc["near_ties", "value"] > 0
    texts = rmlab.parity(world.right, world.right.iloc[:-3]).iloc[0]
    assert (texts["check"], texts["status"], texts["value"]) == (
        "texts",
        "warn",
        len(right) - 3,
    )


@pytest.mark.parametrize(
    "score", [1.0, 0.1]
)  # the mean of many 0.1 is not 0.1 to the last digit
@pytest.mark.parametrize("broken", ["a", "b", "both"])
def test_a_constant_run_never_agrees(world, broken, score):
    constant = world.table(np.full(len(world.right), score))
    rows = rmlab.parity(
        *(constant if broken in (name, "both") else world.right for name in "ab")
    ).set_index("check")
    constant_checks = rows.loc[["error", "line", "cause"]]
    assert set(constant_checks["status"]) == {"fail"}
    assert constant_checks["found"].str.contains("the same score").all()
    assert not rows["found"].str.contains("agree|nan").any()
