"""The course: labs are the solved notebooks without solutions, and each exercise knows right from wrong answers."""

import importlib.util
import re
import shutil
from pathlib import Path

import course
import numpy as np
import pytest

import rmlab

nbformat = pytest.importorskip("nbformat")
COURSE = Path(__file__).parents[1] / "notebooks" / "course"
LABS = sorted(path.name for path in COURSE.glob("*.ipynb"))


def _cells(path):
    return nbformat.read(path, as_version=4).cells


def _script(name):
    spec = importlib.util.spec_from_file_location(name, COURSE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_students_get_labs_that_run_to_the_end_and_no_solutions(tmp_path):
    _script("make_labs").write_labs(tmp_path / "class")
    assert sorted(path.name for path in (tmp_path / "class").iterdir()) == [*LABS, "course.py"]
    for name in LABS:
        cells = [cell for cell in _cells(tmp_path / "class" / name) if "course.todo" in cell.source]
        assert all("raises-exception" in cell.metadata.tags for cell in cells)


def test_answers_of_a_folder_stand_in_one_table(tmp_path):
    for student, name in (("a", "solutions/01_train_a_reward_model.ipynb"), ("b", "02_turn_the_dial.ipynb")):
        (tmp_path / student).mkdir()
        shutil.copy(COURSE / name, tmp_path / student)
    table = _script("collect_answers").collect_answers(tmp_path)
    assert table["points"].tolist() == [3, 0]
    assert table.loc["a/01_train_a_reward_model.ipynb", ["1.1", "1.2", "1.3"]].tolist() == ["right"] * 3


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_its_solution_with_three_exercises_left_open(name):
    lab, solved = COURSE / name, COURSE / "solutions" / name
    solution = nbformat.read(solved, as_version=4)
    outputs = [
        output["data"]["text/plain"]
        for cell in solution.cells
        if "course.check" in cell.source and cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert len(outputs) == 3
    assert all(": right. " in output for output in outputs)
    assert _script("make_labs").make_lab(solution) == nbformat.read(lab, as_version=4)
    source = "\n".join(cell.source for cell in _cells(lab))
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


def test_stubs_and_errors_are_reported_not_raised():
    assert "write the chance" in course.check("1.1", lambda a, b: course.todo("write the chance")).why
    assert "ZeroDivisionError" in course.check("1.1", lambda a, b: 1 / 0).why
    with pytest.raises(NotImplementedError):
        course.todo("anything")
    with pytest.raises(rmlab.DataError, match=r"1\.9"):
        course.check("1.9", 0)
