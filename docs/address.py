"""The repository's address, from pyproject.toml, in every file that shows it.

    python docs/address.py    # after `Repository` in `[project.urls]` was changed

README has badges and the line that installs from the address, the notebooks that open
with one click have badges and a first cell for Colab, the issue forms and CITATION.cff
have their links. Without an address none of them is there. The site reads it at every
build (conf.py, lessons.py).
"""

import re
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
ONE_CLICK = [
    "notebooks/00_quickstart.ipynb",
    "notebooks/03_read_the_matrix.ipynb",
    "notebooks/10_explore.ipynb",
    "notebooks/course/01_train_a_reward_model.ipynb",
    "notebooks/course/solutions/01_train_a_reward_model.ipynb",
]
TAG = "address"
"""Marks the cell for Colab, and in notebooks the line of badges."""

_BADGES = f"<!-- {TAG} -->"


def repository(root: Path = ROOT) -> str | None:
    """Where the code is on GitHub; None where pyproject.toml does not say it."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "")
    address = address.removesuffix("/").removesuffix(".git")
    if re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", address):
        return address
    return None


def binder_link(path: str, address: str) -> str:
    """Where Binder opens a notebook."""
    place = address.removeprefix("https://github.com/")
    return f"https://mybinder.org/v2/gh/{place}/HEAD?urlpath=lab/tree/{path}"


def colab_link(path: str, address: str) -> str:
    """Where Colab opens a notebook."""
    place = address.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{place}/blob/HEAD/{path}"


def badges(path: str, address: str) -> str:
    """Two badges that open a notebook."""
    colab = "https://colab.research.google.com/assets/colab-badge.svg"
    binder = "https://mybinder.org/badge_logo.svg"
    return (
        f"[![Open in Colab]({colab})]({colab_link(path, address)}) "
        f"[![Open in Binder]({binder})]({binder_link(path, address)})"
    )


def requirement(address: str) -> str:
    """What pip installs from the address."""
    return f"reward-model-lab[score,lab] @ git+{address}"


def colab_cell(path: str, address: str) -> nbformat.NotebookNode:
    """The first code cell of a notebook that opens in Colab.

    A lab imports course.py, which stands beside it, so Colab gets the whole folder.
    """
    folder = Path(path).parent.as_posix()
    lines = [
        "# Google Colab only: installs rmlab and fetches the files beside this "
        "notebook.",
        "import sys",
        "",
        'if "google.colab" in sys.modules:',
        f"    %pip install -q '{requirement(address)}'",
        f"    !git clone -q --depth 1 {address} /content/repository",
        f"    %cd /content/repository/{folder}",
    ]
    cell = nbformat.v4.new_code_cell("\n".join(lines), id="colab")
    cell.metadata["tags"] = [TAG, "remove-cell"]
    return cell


def write(root: Path, address: str | None) -> None:
    """Write the address into every file that shows it, or take it out of them."""
    _write_readme(root / "README.md", address)
    _write_citation(root / "CITATION.cff", address)
    _write_contacts(root / ".github" / "ISSUE_TEMPLATE" / "config.yml", address)
    for path in ONE_CLICK:
        _write_notebook(root / path, path, address)


def _write_readme(path: Path, address: str | None) -> None:
    """The badges under the title, and how to install without a clone."""
    content = path.read_text("utf-8")
    content = re.sub(r"(?m)^(\[!\[tests\]|Without a clone: ).*\n\n", "", content)
    if address is not None:
        tests = f"{address}/actions/workflows/tests.yml"
        of_tests = f"[![tests]({tests}/badge.svg)]({tests})"
        opening = f"{of_tests} {badges(ONE_CLICK[0], address)}"
        install = f"Without a clone: `pip install '{requirement(address)}'`."
        content = content.replace("# rmlab\n\n", f"# rmlab\n\n{opening}\n\n", 1)
        content = content.replace("## Install\n\n", f"## Install\n\n{install}\n\n", 1)
    path.write_text(content, "utf-8")


def _write_citation(path: Path, address: str | None) -> None:
    """One line, before the references."""
    content = re.sub(r"(?m)^repository-code: .*\n", "", path.read_text("utf-8"))
    if address is not None:
        line = f'repository-code: "{address}"\n'
        content = content.replace("references:\n", f"{line}references:\n", 1)
    path.write_text(content, "utf-8")


def _write_contacts(path: Path, address: str | None) -> None:
    """What stands beside the issue forms."""
    lines = ["blank_issues_enabled: false"]
    if address is not None:
        lines += [
            "contact_links:",
            "  - name: A fault that others could exploit",
            f"    url: {address}/security/advisories/new",
            "    about: Report it in private (SECURITY.md).",
        ]
    path.write_text("\n".join([*lines, ""]), "utf-8")


def _write_notebook(path: Path, name: str, address: str | None) -> None:
    """The line of badges under the title, and the cell for Colab after the prose."""
    notebook = nbformat.read(path, as_version=4)
    before = nbformat.writes(notebook)
    notebook.cells = [
        cell for cell in notebook.cells if TAG not in cell.metadata.get("tags", [])
    ]
    opening = notebook.cells[0]
    opening.source = re.sub(rf"\n\n[^\n]*{_BADGES}", "", opening.source)

    if address is not None:
        title, _, prose = opening.source.partition("\n")
        opening.source = f"{title}\n\n{badges(name, address)} {_BADGES}\n{prose}"
        notebook.cells.insert(1, colab_cell(name, address))

    if nbformat.writes(notebook) != before:
        nbformat.write(notebook, path)


if __name__ == "__main__":
    write(ROOT, repository())
