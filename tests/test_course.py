"""The course: labs are the solved notebooks without solutions, and stop only where a student has to write."""

import importlib.util
import re
import shutil
from pathlib import Path

import course
import pytest

nbformat = pytest.importorskip("nbformat")
COURSE = Path(__file__).parents[1] / "notebooks" / "course"
LABS = sorted(path.name for path in COURSE.glob("*.ipynb"))


def _read(path):
    return nbformat.read(path, as_version=4)


def _script(name):
    spec = importlib.util.spec_from_file_location(name, COURSE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_students_get_labs_that_run_to_the_end_and_no_solutions(tmp_path):
    _script("make_labs").write_labs(tmp_path / "class")
    assert sorted(path.name for path in (tmp_path / "class").iterdir()) == [*LABS, "course.py"]
    for name in LABS:
        cells = [cell for cell in _read(tmp_path / "class" / name).cells if "course.todo" in cell.source]
        assert all("raises-exception" in cell.metadata.tags for cell in cells)


def test_answers_of_a_folder_stand_in_one_table(tmp_path):
    for student, name in (("a", "solutions/01_train_a_reward_model.ipynb"), ("b", "02_turn_the_dial.ipynb")):
        (tmp_path / student).mkdir()
        shutil.copy(COURSE / name, tmp_path / student)
    table = _script("collect_answers").collect_answers(tmp_path)
    assert table["points"].tolist() == [3, 0]
    assert table.loc["a/01_train_a_reward_model.ipynb", ["1.1", "1.2", "1.3"]].tolist() == ["right"] * 3


def test_six_labs_and_as_many_solutions():
    assert len(LABS) == 6
    assert sorted(path.name for path in (COURSE / "solutions").glob("*.ipynb")) == LABS


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_its_solution_without_the_solutions(name):
    assert _script("make_labs").make_lab(_read(COURSE / "solutions" / name)) == _read(COURSE / name)


@pytest.mark.parametrize("name", LABS)
def test_every_exercise_of_a_lab_is_asked_once_and_checked(name):

    source = "\n".join(cell.source for cell in _read(COURSE / name).cells)
    mine = [number for number in course.EXERCISES if number.startswith(f"{int(name[:2])}.")]
    assert len(mine) == 3
    for number in mine:
        assert source.count(f"**Exercise {number}") == 1
        assert source.count(f'course.check("{number}"') == 1
    assert source.count("course.todo(") == 3
    assert "solution:" not in source


@pytest.mark.parametrize("name", LABS)
def test_the_first_cell_says_what_to_expect_and_the_last_what_to_discuss(name):
    cells = _read(COURSE / name).cells
    for promise in ("**The question.**", "**What you will have.**", "**What you need.**", "**How long.**"):
        assert promise in cells[0].source
    assert "## To discuss" in cells[-1].source


@pytest.mark.parametrize("name", LABS)
def test_all_answers_in_the_solution_are_right(name):
    outputs = [
        output["data"]["text/plain"]
        for cell in _read(COURSE / "solutions" / name).cells
        if "course.check" in cell.source and cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert len(outputs) == 3
    assert all(": right. " in output for output in outputs)


@pytest.mark.parametrize("name", LABS)
def test_an_unsolved_lab_stops_in_exercise_cells_only(name, tmp_path, monkeypatch):
    """The code of a lab, cell by cell; models are not trained, which would take minutes."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    train = course.train
    monkeypatch.setattr(course, "train", lambda pairs, folder, **more: train(pairs, folder, **(more | {"steps": 2})))
    space = {}
    for cell in _read(COURSE / name).cells:
        if cell.cell_type != "code" or "raises" in cell.source:
            continue
        exercise = "exercise" in cell.metadata.get("tags", [])
        source = cell.source
        if not (exercise and _stops(source, name, space)):
            exec(compile(source, name, "exec"), space)
    mpl.pyplot.close("all")


def test_every_idea_of_a_lab_is_a_slide():
    """Slides of the solved notebooks, as they are saved there: sixteen by nine, and named once."""
    import matplotlib.image

    folder = COURSE / "solutions" / "slides"
    named = []
    for name in LABS:
        source = "\n".join(cell.source for cell in _read(COURSE / name).cells if cell.cell_type == "code")
        mine = re.findall(r'"slides/(\w+)", width="slide"', source)
        assert len(mine) >= 2
        assert all(slide.startswith(name[:2]) for slide in mine)
        named += mine
    assert sorted(named) == sorted(path.stem for path in folder.glob("*.png"))
    assert all(matplotlib.image.imread(path).shape[:2] == (1080, 1920) for path in folder.glob("*.png"))
    listed = (COURSE / "README.md").read_text(encoding="utf-8")
    assert all(f"(solutions/slides/{slide}.png)" in listed for slide in named)


def _stops(source, name, space):
    """Whether a cell ends with the stub's message."""
    try:
        exec(compile(source, name, "exec"), space)
    except NotImplementedError as stub:
        return "Your turn" in str(stub)
    return True
