"""The course: labs and exercises, its world, its trained models and policies, and the
toys with their dials.
"""

import importlib.util
from pathlib import Path

import course
import numpy as np
import pandas as pd
import pytest
from fakes import responses

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


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_its_solution_with_three_exercises_left_open(name):
    solution = nbformat.read(COURSE / "solutions" / name, as_version=4)
    lab = nbformat.read(COURSE / name, as_version=4)
    assert _script("make_labs").make_lab(solution) == lab
    checks = [cell for cell in solution.cells if "course.check" in cell.source]
    outputs = [o["data"]["text/plain"] for c in checks for o in c.get("outputs", [])]
    assert all(": right. " in output for output in outputs)
    source = "\n".join(cell.source for cell in lab.cells)
    numbers = [n for n in course.EXERCISES if n.startswith(f"{int(name[:2])}.")]
    assert all(source.count(f'course.check("{number}"') == 1 for number in numbers)
    assert source.count("course.todo(") == len(numbers) == len(outputs) >= 3
    assert "solution:" not in source


# A common mistake in a function, a number and a choice; the solutions stand, marked as
# right, in the notebooks.
MISTAKES = {
    "1.3": lambda a, b: np.mean(a >= b),
    "2.1": 1.0,
    "2.3": ("markdown", "concise"),
    "3.1": lambda outcomes: outcomes.mean(1).std() / np.sqrt(len(outcomes)),
    "6.3": "long",
}


def test_an_exercise_says_why_a_mistake_is_one():
    for number, mistake in MISTAKES.items():
        refused = course.check(number, mistake)
        assert not refused.right, refused
        assert "stopped with" not in refused.why, refused
    for number, exercise in course.EXERCISES.items():
        for answer in (None, [1, 2], {"a": 1}, True):
            assert exercise.wants in course.check(number, answer).why
    assert "write" in course.check("1.1", lambda a, b: course.todo("write it")).why
    assert "ZeroDivisionError" in course.check("1.1", lambda a, b: 1 / 0).why
    with pytest.raises(DataError, match=r"1\.9"):
        course.check("1.9", 0)


def test_a_right_answer_may_call_a_wrong_one_to_an_earlier_exercise():
    names = {"np": np}
    exec(
        "def preference(a, b):\n    return a > b\n"
        "def loss(a, b):\n    return -np.log(preference(a, b)).mean()\n"
        "def wrong(a, b):\n    return np.log(preference(a, b)).mean()\n",
        names,
    )
    assert not course.check("1.1", names["preference"]).right
    assert course.check("1.2", names["loss"]).right
    assert not course.check("1.2", names["wrong"]).right


def _solutions():
    """Answers of the solved labs by exercise."""
    names = {"np": np, "pd": pd, "rmlab": rmlab, "course": course}
    for path in sorted((COURSE / "solutions").glob("*.ipynb")):
        for cell in _cells(path):
            source = cell.source
            if "solution:" in source and "course.check(" in source:
                source, call = source.rsplit("course.check(", 1)
                exec(source, names)
                number, answer = call.removesuffix(")").split(", ")
                yield number.strip('"'), names[answer]


def test_a_right_answer_is_right_on_every_machine_and_far_from_a_mistake(monkeypatch):
    """Right in single precision, too; a mistake is further off than what rounds."""
    seen = []
    explain = course._explain

    def listen(result, expected, mistakes, otherwise):
        seen.append((expected, [*mistakes.values()]))
        return explain(result, expected, mistakes, otherwise)

    monkeypatch.setattr(course, "_explain", listen)
    solutions = dict(_solutions())
    assert [*solutions] == [*course.EXERCISES]
    for number, answer in solutions.items():
        rounded = answer
        if callable(answer):

            def rounded(*arguments, answer=answer):
                result = answer(*arguments)
                is_float = getattr(result, "dtype", None) == np.float64
                return result * np.float32(1 + 1e-5) if is_float else result

        assert course.check(number, rounded).right, number
    for expected, mistakes in seen:
        if not isinstance(expected, str):
            for mistake in mistakes:
                assert np.shape(mistake) != np.shape(expected) or (
                    np.abs(np.subtract(mistake, expected)).max() > 5e-3
                )


def test_the_first_loss_is_the_formula(tmp_path, monkeypatch):
    """Before the first step the model is the random one: its loss on the first batch,
    computed by hand.
    """
    pairs = course.preferences(300, markdown=0.5)
    monkeypatch.setattr(course, "BATCH", len(pairs) // 2)
    history = course.train(pairs, tmp_path / "trained", steps=1).history
    words = course.train_tokenizer([*pairs["prompt"], *pairs["response"]])
    folder = toy.save_model(tmp_path / "random", words=words, seed=0, **course.SIZE)
    scored = rmlab.score(pairs, rmlab.classifier(folder)).pivot(
        index="id", columns="label", values="score"
    )
    odds = (scored["chosen"] - scored["rejected"]).to_numpy()
    assert history["loss"][0] == pytest.approx(np.log1p(np.exp(-odds)).mean(), rel=1e-5)
    assert history["accuracy"][0] == pytest.approx((odds > 0).mean())


def test_a_switch_for_tests_moves_the_first_weights_as_another_machine_would(
    monkeypatch,
):
    model = torch.nn.Linear(300, 300)
    before = model.weight.detach().clone()
    monkeypatch.delenv("RMLAB_OTHER_MACHINE", raising=False)
    course._move_weights(model)
    assert torch.equal(before, model.weight)
    monkeypatch.setenv("RMLAB_OTHER_MACHINE", "1")
    course._move_weights(model)
    moves = model.weight / before - 1
    assert moves.std().item() == pytest.approx(1e-6, rel=0.1)


def test_numbers_of_trained_models_are_held_between_bounds():
    bounds = {"easy": (0.5, 0.8, 1.01), "hard": (0.0, 0.1, 0.3)}
    shown = course.between({"easy": 0.9, "hard": 0.2}, bounds)
    assert shown.equals(course.between({"easy": 0.6, "hard": 0.05}, bounds))
    for hard in (0.3, -0.1, np.nan):
        with pytest.raises(AssertionError, match="hard"):
            course.between({"easy": 0.9, "hard": hard}, bounds)


def test_a_toy_scores_the_sum_of_what_it_likes_in_any_company():
    texts = responses(100)
    read = (texts["prompt"], texts["response"])
    likes = {"skill": 2.0, "style": 0.25, "length": 0.5}
    scores = toy.scorer(texts, **likes, noise=0.0)(*read)
    is_right = texts["label"] == "chosen"
    length = np.log2(texts["response"].str.len())
    expected = 2.0 * is_right + 0.25 * texts["slot"] + 0.5 * length
    np.testing.assert_allclose(scores, expected, rtol=1e-15)
    together = toy.scorer(texts, seed=3)(*read)
    shuffled = texts.sample(frac=1, random_state=0)
    apart = toy.scorer(shuffled, seed=3)(shuffled["prompt"], shuffled["response"])
    np.testing.assert_array_equal(together[shuffled.index], apart)
    assert not np.allclose(together, toy.scorer(texts, seed=4)(*read))
    assert toy.scorer(texts, **likes, noise=0.0)(["unknown"], ["t"]).tolist() == [0.0]


def test_a_seed_gives_its_weights_and_leaves_the_random_state_alone(tmp_path):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    folders = [
        toy.save_model(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))
    ]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(state, torch.random.get_rng_state())


def verdict_notebook(path, *verdicts):
    """A notebook with a run check for each verdict, and four texts that look like one:
    prose, a comment, a printed line, and a check that was not run.
    """
    new = nbformat.v4
    cells = [new.new_markdown_cell("9.1: right.")]
    for verdict in [*verdicts, "9.2: right.", "9.4: right."]:
        number = verdict.partition(":")[0]
        source = "" if number == "9.2" else f'course.check("{number}", 1)'
        output = new.new_output("execute_result", {"text/plain": verdict})
        if number == "9.4":
            output = new.new_output("stream", text=verdict)
        cells.append(new.new_code_cell(source, outputs=[output]))
    cells.append(new.new_code_cell('course.check("9.3", 1)  # 9.3: right.'))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new.new_notebook(cells=cells), path)


def test_answers_are_counted_by_student_and_a_broken_file_costs_only_itself(
    tmp_path, capsys
):
    ann, bob = tmp_path / "ann", tmp_path / "bob"
    verdict_notebook(ann / "01.ipynb", "1.1: right.", "1.2: not yet.")
    verdict_notebook(ann / "02.ipynb", "2.1: right.")
    verdict_notebook(bob / "01.ipynb", "1.2: right.")
    verdict_notebook(ann / ".ipynb_checkpoints" / "01-checkpoint.ipynb", "1.2: right.")
    (bob / "02.ipynb").write_text("{")
    collect_answers = _script("collect_answers").collect_answers
    table = collect_answers(tmp_path)
    assert table.index.tolist() == ["ann/01.ipynb", "ann/02.ipynb", "bob/01.ipynb"]
    assert table[["points", "total"]].to_numpy().tolist() == [[1, 2], [1, 2], [1, 1]]
    assert not any(name.startswith("9") for name in table)
    assert str(bob / "02.ipynb") in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="nowhere"):
        collect_answers(tmp_path / "nowhere")
