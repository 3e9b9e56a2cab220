"""The course: labs and exercises, its world, its trained models and policies, and the toys with their dials."""

import importlib.util
import re
import shutil
from pathlib import Path

import course
import numpy as np
import pandas as pd
import pytest
from fakes import responses, toy_responses

import rmlab
from rmlab import toy
from rmlab.tables import DataError

nbformat = pytest.importorskip("nbformat")
torch = pytest.importorskip("torch")
COURSE = Path(__file__).parents[1] / "notebooks" / "course"
LABS = sorted(path.name for path in COURSE.glob("*.ipynb"))


def _cells(path):
    return nbformat.read(path, as_version=4).cells


def _script(name):
    spec = importlib.util.spec_from_file_location(name, COURSE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_students_get_labs_that_run_to_the_end_and_their_answers_stand_in_one_table(tmp_path):
    _script("make_labs").write_labs(tmp_path / "class")
    assert sorted(path.name for path in (tmp_path / "class").iterdir()) == [*LABS, "course.py"]
    for name in LABS:
        cells = [cell for cell in _cells(tmp_path / "class" / name) if "course.todo" in cell.source]
        assert all("raises-exception" in cell.metadata.tags for cell in cells)
    for student, name in (("a", "solutions/01_train_a_reward_model.ipynb"), ("b", "02_turn_the_dial.ipynb")):
        (tmp_path / "all" / student).mkdir(parents=True)
        shutil.copy(COURSE / name, tmp_path / "all" / student)
    table = _script("collect_answers").collect_answers(tmp_path / "all")
    assert table["points"].tolist() == [3, 0]
    assert table.loc["a/01_train_a_reward_model.ipynb", ["1.1", "1.2", "1.3"]].tolist() == ["right"] * 3


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_its_solution_with_three_exercises_left_open(name):
    solution = nbformat.read(COURSE / "solutions" / name, as_version=4)
    checks = [cell for cell in solution.cells if "course.check" in cell.source and cell.cell_type == "code"]
    outputs = [output["data"]["text/plain"] for cell in checks for output in cell.outputs if "data" in output]
    assert [": right. " in output for output in outputs] == [True] * 3
    assert _script("make_labs").make_lab(solution) == nbformat.read(COURSE / name, as_version=4)
    source = "\n".join(cell.source for cell in _cells(COURSE / name))
    numbers = [number for number in course.EXERCISES if number.startswith(f"{int(name[:2])}.")]
    assert all(source.count(f'course.check("{number}"') == 1 for number in numbers)
    assert source.count("course.todo(") == len(numbers) == 3
    assert "solution:" not in source
    slides = re.findall(r'"slides/(\w+)", width="slide"', source)
    assert slides
    assert all((COURSE / "solutions" / "slides" / f"{slide}.png").is_file() for slide in slides)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def of_styles(n):
    return lambda pairs: pairs.groupby("id").filter(lambda both: both["style"].nunique() == n)


def residuals(scores, length):
    return scores - np.polyfit(length, scores, 1)[0] * (length - length.mean())


def standard_error(outcomes, ddof=1):
    return outcomes.mean(1).std(ddof=ddof) / np.sqrt(len(outcomes))


# The solution of each exercise, and a common mistake or two.
ANSWERS = {
    "1.1": [lambda a, b: sigmoid(a - b), lambda a, b: sigmoid(b - a), lambda a, b: a - b],
    "1.2": [lambda a, b: -np.log(sigmoid(a - b)).mean(), lambda a, b: np.log(sigmoid(a - b)).mean()],
    "1.3": [lambda a, b: np.mean(a > b), lambda a, b: np.mean(a >= b), lambda a, b: np.sum(a > b)],
    "2.1": [0.5, 1.0, 0.25, 2],
    "2.2": [lambda m: m.to_numpy()[np.triu_indices(3, 1)].mean(), lambda m: m.to_numpy()[np.triu_indices(3)].mean()],
    "2.3": [("concise", "markdown"), ("markdown", "concise"), ("markdown", "markdown"), ("concise", "plain")],
    "3.1": [standard_error, lambda outcomes: standard_error(outcomes, ddof=0)],
    "3.2": [lambda a, b: "a" if a > 0 else "b" if b < 0 else "open", lambda a, b: "a" if a + b > 0 else "b"],
    "3.3": [1.0, 0.5, 2.0, 0.25],
    "4.1": [of_styles(1), of_styles(2), lambda pairs: pairs],
    "4.2": [residuals, lambda scores, length: scores - length, lambda scores, length: scores / length],
    "4.3": ["both", "bias", "signal", "nothing"],
    "5.1": [lambda n: np.log(n) - (n - 1) / n, np.log, lambda n: (n - 1) / n],
    "5.2": [lambda r: r.argmax(axis=1), lambda r: r.max(axis=1), lambda r: r.argmax(axis=0)],
    "5.3": [lambda t: t.loc[t["true"].idxmax(), "step"], lambda t: t.loc[t["proxy"].idxmax(), "step"]],
    "6.1": [lambda t: (t["hard"] < 0.5).sum(), lambda t: (t["hard"] < 0.5).mean(), lambda t: (t["easy"] < 0.5).sum()],
    "6.2": [lambda t: (t["rank_low"] == 1).sum(), lambda t: (t["rank"] == 1).sum(), len],
    "6.3": ["short", "long", "Short"],
}


def test_each_exercise_takes_the_solution_and_says_why_a_mistake_is_one():
    assert list(course.EXERCISES) == list(ANSWERS)
    for number, (solution, *mistakes) in ANSWERS.items():
        verdict = course.check(number, solution)
        assert verdict.right, verdict
        assert verdict.why == course.EXERCISES[number].lesson
        for mistake in mistakes:
            refused = course.check(number, mistake)
            assert not refused.right, refused
            assert "stopped with" not in refused.why, refused
        for answer in (None, [1, 2], {"a": 1}, True):
            assert course.EXERCISES[number].wants in course.check(number, answer).why
    assert "write the chance" in course.check("1.1", lambda a, b: course.todo("write the chance")).why
    assert "ZeroDivisionError" in course.check("1.1", lambda a, b: 1 / 0).why
    with pytest.raises(DataError, match=r"1\.9"):
        course.check("1.9", 0)


def test_the_first_loss_is_the_formula(tmp_path, monkeypatch):
    """Before the first step the model is the random one: its loss on the first batch, computed by hand."""
    pairs = course.preferences(300, markdown=0.5)
    monkeypatch.setattr(course, "BATCH", len(pairs) // 2)
    history = course.train(pairs, tmp_path / "trained", steps=1).history
    words = course.train_tokenizer([*pairs["prompt"], *pairs["response"]])
    folder = toy.save_model(tmp_path / "random", words=words, seed=0, **course.SIZE)
    scored = rmlab.score(pairs, rmlab.classifier(folder)).pivot(index="id", columns="label", values="score")
    odds = (scored["chosen"] - scored["rejected"]).to_numpy()
    assert history["loss"][0] == pytest.approx(np.log1p(np.exp(-odds)).mean(), rel=1e-5)
    assert history["accuracy"][0] == pytest.approx((odds > 0).mean())
    for table, message in (
        (pairs.iloc[:100], "50 comparisons.*200"),
        *[(odd, "one chosen") for odd in (course.world(300), pairs.iloc[1:], pairs[pairs["label"] == "chosen"])],
    ):
        with pytest.raises(DataError, match=message):
            course.train(table, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(DataError, match="markdown"):
            course.preferences(10, markdown=value)


def test_a_toy_scores_the_sum_of_what_it_likes_in_any_company():
    texts = responses(400)
    prompts, answers = texts["prompt"], texts["response"]
    scores = toy.scorer(texts, skill=2.0, style=0.25, length=0.5, noise=0.0)(prompts, answers)
    right = (texts["label"] == "chosen").to_numpy()
    expected = 2.0 * right + 0.25 * texts["slot"].to_numpy() + 0.5 * np.log2(answers.str.len().to_numpy())
    np.testing.assert_allclose(scores, expected, rtol=1e-15)
    together = toy.scorer(texts, seed=3)(prompts, answers)
    shuffled = texts.sample(frac=1, random_state=0)
    apart = pd.Series(toy.scorer(shuffled, seed=3)(shuffled["prompt"], shuffled["response"]), index=shuffled.index)
    np.testing.assert_array_equal(together, apart.sort_index())
    assert not np.allclose(together, toy.scorer(texts, seed=4)(prompts, answers))
    assert toy.scorer(texts, skill=1.0, style=1.0, noise=0.0)(["unknown"], ["text"]).tolist() == [0.0]
    noise = toy.scorer(texts, skill=0, style=0, noise=1.0)(prompts, answers)  # standard normal
    assert abs(noise.mean()) < 4 / np.sqrt(len(noise))
    assert abs(noise.std() - 1) < 0.05
    assert abs(np.corrcoef(noise[0::2], noise[1::2])[0, 1]) < 0.1


def test_a_seed_gives_its_weights_and_leaves_the_random_state_alone(tmp_path):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    folders = [toy.save_model(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(state, torch.random.get_rng_state())
    for option in ({"architecture": "lama"}, {"task": "clasifier"}):
        with pytest.raises(ValueError, match="|".join(option.values())):
            toy.save_model(tmp_path / "none", **option)
    assert not (tmp_path / "none").exists()


def test_servers_differ_from_the_local_model_where_they_are_told_to(tmp_path):
    texts = toy_responses(prompts=4, slots=2)
    folder = toy.save_model(tmp_path / "model", initializer_range=0.5)
    with toy.serve(folder, sigmoid=True) as server, pytest.raises(DataError, match="sigmoid"):
        rmlab.remote(server.url, kind="vllm", tokenizer=folder)
    with toy.serve(folder, double_bos=True) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, name="served")
        rows = rmlab.parity(rmlab.classifier(folder, device="cpu"), remote, texts).set_index("check")
    assert rows.loc["cause", "found"].startswith("double bos")
