"""Two runs of one reward model: every cause that is injected is named, and none where there is none."""

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import toy_responses
from faulty_server import FaultyServer
from served_models import Vllm, oracle

import rmlab
from rmlab import toy
from rmlab.checks import parity_items
from rmlab.checks.parity import EXACT, HALF
from rmlab.tables import DataError


@pytest.fixture(scope="module")
def texts():
    return toy_responses(prompts=12, slots=2)


class World:
    """A tiny reward model, its right scores, and what any misreading of its texts gives by transformers itself."""

    def __init__(self, folder, texts, **config):
        self.folder, self.texts = toy.save_model(folder, **({"initializer_range": 0.4} | config)), texts
        self.model = rmlab.classifier(self.folder, device="cpu")
        self.right = rmlab.score(texts, self.model)
        self.words = self.model.tokenizer
        prepared = self.model.prepare(texts["prompt"].tolist(), texts["response"].tolist())
        self.ids = [ids.tolist() for ids in prepared.ids]
        self.one = oracle(self.folder)

    def run(self, misread):
        """Scores of a run that reads each text as `misread(ids)`."""
        return self.table([self.one(misread(ids))[0] for ids in self.ids])

    def table(self, scores):
        return self.right.assign(score=np.asarray(scores, np.float64), model="served")

    def cause(self, other, **options):
        """The word that names the cause."""
        rows = rmlab.parity(self.right, other, self.texts, model=self.model, **options).set_index("check")
        return rows.loc["cause", "found"].partition(":")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory, texts):
    return World(tmp_path_factory.mktemp("parity") / "model", texts)


@pytest.fixture(scope="module")
def chatml(tmp_path_factory, texts):
    words = toy.tokenizer(chat_template="chatml")
    return World(tmp_path_factory.mktemp("parity") / "chatml", texts, architecture="qwen2", words=words)


def half(scores, dtype=torch.bfloat16):
    return torch.tensor(np.asarray(scores)).to(dtype).double().numpy()


MISREAD = {
    "double bos": lambda ids, words: [words.bos_token_id, *ids],
    "missing bos": lambda ids, words: ids[1:],
    "eos, missing": lambda ids, words: ids[:-1],
    "eos, added": lambda ids, words: [*ids, words.eos_token_id],
    "truncation, end": lambda ids, words: ids[:64],
    "truncation, beginning": lambda ids, words: ids[-64:],
    "truncation, kept bos": lambda ids, words: [*ids[:1], *ids[1:][-31:]],
    "none": lambda ids, words: ids,
}


@pytest.mark.parametrize("name", MISREAD)
def test_a_misreading_of_the_tokens_is_named(world, name):
    other = world.run(lambda ids: MISREAD[name](ids, world.words))
    assert world.cause(other) == name.partition(",")[0]


UNHEARD_OF = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


@pytest.mark.parametrize("template", ["chatml", "raw", UNHEARD_OF])
def test_another_template_is_named(world, texts, template):
    jinja = toy.models.CHAT_TEMPLATES.get(template, template)
    other = rmlab.score(texts, rmlab.classifier(world.folder, template=jinja, device="cpu", name="served"))
    found = world.cause(other)
    # Where the template is not among those that are tried, no cause is named, and none is made up.
    assert found == ("unknown" if template == UNHEARD_OF else "template")


def test_what_the_numbers_show_is_named(world):
    right, rng = world.right["score"], np.random.default_rng(0)
    sigmoid, noise = 1 / (1 + np.exp(-right)), right.std() * rng.normal(size=len(right))
    for scores, cause in [
        (sigmoid, "sigmoid"),
        (half(sigmoid), "sigmoid"),
        (np.ones(len(right)), "softmax"),
        (2.5 * right - 1, "scale"),
        (np.roll(right, 1), "order"),
        (right + 1e-5 * noise, "none"),
        (right + 0.02 * noise, "unknown"),
    ]:
        assert world.cause(world.table(scores)) == cause
    rows = rmlab.parity(world.table(sigmoid), world.right).set_index("check")
    assert rows.loc["cause", "found"].startswith("sigmoid"), "whichever run is the wrong one"


def in_half(world, dtype, part):
    """Scores whose head, or whole model, transformers computed in half precision."""
    from transformers import AutoModelForSequenceClassification

    of_model = dtype if part == "model" else torch.float32
    model = AutoModelForSequenceClassification.from_pretrained(world.folder, dtype=of_model).eval()
    with torch.inference_mode():
        states = [model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in world.ids]
        weights = model.score.weight.to(dtype)
        return world.table([torch.nn.functional.linear(state.to(dtype), weights).item() for state in states])


@pytest.mark.parametrize("part", ["head", "model"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["world", "chatml"])
def test_half_precision_that_was_computed_in_is_named(request, architecture, dtype, part):
    made = request.getfixturevalue(architecture)
    other = in_half(made, dtype, part)
    rows = rmlab.parity(made.right, other, made.texts, model=made.model).set_index("check")
    error, found = rows.loc["error", "value"], rows.loc["cause", "found"]
    kind = str(dtype).removeprefix("torch.")
    if error > HALF:  # a whole model in bfloat16: no cause is made up
        assert (dtype, part) == (torch.bfloat16, "model")
        assert found.startswith("unknown: ")
    elif error > EXACT:
        assert found.startswith(f"half precision: all scores are {kind} numbers")
        assert rmlab.parity(other, made.right, made.texts, model=made.model).iloc[-1]["found"] == found
    else:
        assert (dtype, part) == (torch.float16, "head")
        assert found.startswith("none")


def test_half_precision_does_not_hide_another_cause(world):
    twice = world.run(lambda ids: MISREAD["double bos"](ids, world.words))
    for dtype in (torch.bfloat16, torch.float16):
        assert world.cause(world.table(half(twice["score"], dtype))) == "double bos"


def test_an_end_token_taken_for_padding_is_named(tmp_path, texts):
    words = toy.tokenizer()
    words.pad_token = words.eos_token
    world = World(tmp_path / "model", texts, words=words)
    # transformers reads the last token that is not padding: the one before the end token.
    assert world.cause(world.run(lambda ids: ids)) == "eos"


def test_another_tokenizer_is_named(world, tmp_path, texts):
    other = toy.tokenizer(["Another text to learn other pieces from, with other words and numbers 1234."] * 3)
    folder = toy.save_model(tmp_path / "m", words=other, vocab_size=len(world.words), initializer_range=0.4)
    served = rmlab.classifier(folder, device="cpu", name="served")
    prepared = served.prepare(texts["prompt"].tolist(), texts["response"].tolist())
    scores = [world.one(ids.tolist())[0] for ids in prepared.ids]
    assert world.cause(world.table(scores)) == "unknown"
    assert world.cause(world.table(scores), tokenizers=[other]) == "tokenizer"


def test_other_weights_have_no_cause_among_these(world, tmp_path, texts):
    other = toy.save_model(tmp_path / "other", seed=1, initializer_range=0.4)
    assert world.cause(rmlab.score(texts, rmlab.classifier(other, device="cpu"))) == "unknown"


def test_a_served_model_and_a_local_one_are_compared(world, texts):
    with FaultyServer(Vllm(world.one, world.words)) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=world.folder)
        rows = rmlab.parity(world.model, remote, texts).set_index("check")
        assert rows.loc["cause", "found"].startswith("none")
        assert set(rows["status"]) <= {"pass", "warn"}
        server.respond.bos, server.respond.counts = True, False
        rows = rmlab.parity(world.model, remote, texts).set_index("check")
    assert rows.loc["cause", "found"].startswith("double bos")


def test_errors_flips_and_near_ties_are_counted(world):
    right = world.right["score"].to_numpy()
    wrong = right.copy()
    wrong[0] += 100 * right.std()
    rows = rmlab.parity(world.right, world.table(wrong)).set_index("check")
    items = parity_items(world.right, world.table(wrong))
    assert rows.loc["error", "value"] == pytest.approx(100)
    assert items["error"].abs().round(9).tolist() == [100.0] + [0.0] * (len(right) - 1)
    margins = [rmlab.pairs(table)["margin"] for table in (world.right, world.table(wrong))]
    assert rows.loc["flips", "value"] == (np.sign(margins[0]) != np.sign(margins[1])).sum()
    line = rmlab.parity(world.right, world.table(2 * right + 3)).set_index("check").loc["line"]
    assert line["value"] == pytest.approx(2)
    assert "offset 3" in line["found"]
    assert rows.index.tolist() == ["texts", "error", "line", "flips", "near_ties", "cause"]
    ties = rmlab.parity(world.right, world.table(np.round(right / (5 * right.std())))).set_index("check")
    assert "become ties" in ties.loc["flips", "found"]
    assert ties.loc["near_ties", "value"] > 0


def test_tables_that_cannot_be_compared_are_refused(world, texts):
    both = pd.concat([world.right, world.right.assign(model="other")])
    with pytest.raises(DataError, match="a: has the models"):
        rmlab.parity(both, world.right)
    with pytest.raises(DataError, match="0 texts in common"):
        rmlab.parity(world.right, world.right.assign(benchmark="other"))
    with pytest.raises(DataError, match="responses: a scorer needs texts"):
        rmlab.parity(world.model, world.right)
    rows = rmlab.parity(world.right, world.right.iloc[:-3]).set_index("check")
    assert rows.loc["texts", "status"] == "warn"
    assert "3 only in a" in rows.loc["texts", "found"]


@pytest.mark.parametrize("score", [1.0, 0.1])  # the mean of many 0.1 is not 0.1 to the last digit
@pytest.mark.parametrize("broken", ["a", "b", "both"])
def test_a_constant_run_never_agrees(world, broken, score):
    constant = world.table(np.full(len(world.right), score))
    a, b = (constant if broken in (name, "both") else world.right for name in "ab")
    rows = rmlab.parity(a, b).set_index("check")
    assert rows.loc[["error", "line", "cause"], "status"].tolist() == ["fail"] * 3
    assert all("the same score" in rows.loc[check, "found"] for check in ("error", "line", "cause"))
    assert not rows["found"].str.contains("agree|nan").any()
