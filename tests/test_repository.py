"""The repository's outside: one place for its address, workflows, packages for
conda.
"""

import json
import re
import shutil
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ADDRESS = "https://github.com/somebody/rmlab"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONDA = {"torch": "pytorch", "playwright": "playwright-python"}
"""Names of packages that conda-forge calls otherwise."""

address = pytest.importorskip("address", reason="nbformat is not installed")


def shown(root):
    """Every file that shows the address."""
    names = ["README.md", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml"]
    return {name: root / name for name in [*names, *address.ONE_CLICK]}


@pytest.fixture
def copy(tmp_path):
    """The files that show the address, and pyproject.toml, which has it."""
    for name in ["pyproject.toml", *shown(ROOT)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def contents(root):
    return {name: path.read_bytes() for name, path in shown(root).items()}


def test_an_address_stands_everywhere_and_goes_without_a_trace(copy):
    before = contents(copy)
    address.write(copy, None)
    assert contents(copy) == before, "the files show another address than pyproject"

    address.write(copy, ADDRESS)
    after = contents(copy)
    for name, content in after.items():
        assert ADDRESS in content.decode(), name
    readme = after["README.md"].decode()
    assert f"pip install 'reward-model-lab[score,lab] @ git+{ADDRESS}'" in readme
    for name in ["README.md", *address.ONE_CLICK]:
        assert "colab-badge.svg" in after[name].decode(), name
        assert "mybinder.org/v2/gh/somebody/rmlab" in after[name].decode(), name
    yaml.safe_load(after["CITATION.cff"])
    yaml.safe_load(after[".github/ISSUE_TEMPLATE/config.yml"])

    address.write(copy, ADDRESS)
    assert contents(copy) == after
    address.write(copy, None)
    assert contents(copy) == before


def test_readme_begins_with_the_two_commands():
    top = (ROOT / "README.md").read_text("utf-8").split("\n## ")[0]
    first = re.search(r"```\n(make .*?)```", top, re.DOTALL)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [
        "make demo",
        "make test",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_runs_what_make_has(path):
    content = path.read_text("utf-8")
    workflow = yaml.safe_load(content)
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text("utf-8")))
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            words = step.get("run", "").split()
            if words[:1] == ["make"]:
                assert set(words[1:]) <= targets
    for line in re.findall(r"uses: (.*)", content):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # \S+", line), line


def wanted(*extras):
    """The requirements of the package and of extras, as conda-forge names them."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    found = set()
    for line in lines:
        name = re.split(r"[><=\[ ]", line)[0]
        if name != "reward-model-lab":
            found.add(CONDA.get(name, name) + line[len(name) :])
    return found


def listed(path):
    """The packages of an environment for conda, those that pip adds too."""
    lines = set()
    for line in yaml.safe_load(path.read_text("utf-8"))["dependencies"]:
        lines |= set(line["pip"]) if isinstance(line, dict) else {line}
    return {
        line for line in lines if not re.match(r"(python|pip)\b(?!-)|--editable", line)
    }


def test_the_environments_for_conda_have_the_packages_of_pyproject():
    extras = ["score", "judge", "lab"]
    assert listed(ROOT / "binder" / "environment.yml") == wanted(*extras)
    every = wanted(*extras, "triton", "ray", "dev")
    assert listed(ROOT / "environment.yml") == every


def test_the_recipe_has_the_packages_and_the_version_of_pyproject():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text("utf-8"))
    lines = [line.replace(" ", "", 1) for line in recipe["requirements"]["run"]]
    assert set(lines) - {"python>=3.11"} == wanted()
    from rmlab import __version__

    assert recipe["context"]["version"] == __version__
    assert recipe["build"]["python"]["entry_points"] == ["rmlab = rmlab_command:main"]


# Links of pages that people read, also outside the site (whose own links test_docs.py
# follows).

PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/how_to/*.md"),
    *ROOT.glob("performance/*.md"),
    *ROOT.glob("data/**/*.md"),
    *ROOT.glob("notebooks/**/*.md"),
    *ROOT.glob("notebooks/**/*.ipynb"),
]
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)|<?(https?://[^\s<>\"`)\]\\]+)")
# What links to elsewhere look like: no network is asked whether they lead somewhere.
FORMS = {
    "arxiv.org": r"/(abs|pdf)/\d\d(0[1-9]|1[0-2])\.\d{4,5}(v\d+)?",
    "doi.org": r"/10\.\d{4,}/\S+",
    "github.com": r"/[\w.-]+/[\w.-]+(/(tree|blob|issues|pull)/\S+)?",
    "huggingface.co": r"/[\w./-]+",
}
HOMES = {
    "docs.ray.io",
    "filesystem-spec.readthedocs.io",
    "keepachangelog.com",
    "semver.org",
    "tenacity.readthedocs.io",
    "www.contributor-covenant.org",
    "www.python-httpx.org",
}
"""Sites of others that pages may name."""


def prose_of(path):
    """What a page says outside of its code."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        prose = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(lines) for lines in prose)
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def fault_of(link, path):
    """What is wrong with a link of a page; empty if nothing."""
    parts = urlsplit(link)
    if not parts.scheme:
        if path.is_relative_to(ROOT / "docs"):
            # Of the site, where test_docs.py follows it.
            return ""
        target = path.parent / unquote(parts.path)
        return "" if not parts.path or target.exists() else "leads nowhere"
    if parts.scheme != "https":
        return "is not https"
    if parts.hostname in FORMS:
        is_formed = re.fullmatch(FORMS[parts.hostname], parts.path)
        return "" if is_formed else f"is no address of {parts.hostname}"
    return "" if parts.hostname in HOMES else "is of an unknown site"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere_or_have_the_form_of_their_site(path):
    faults = []
    for inside, outside in LINK.findall(prose_of(path)):
        link = inside or outside.rstrip(".,;:")
        fault = fault_of(link, path)
        if fault:
            faults.append(f"{link} {fault}")
    assert not faults
