"""Each notebook, executed in a new kernel, prints what is stored; and what the check of it finds."""

import sys

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from scripts import notebooks

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored(path):
    assert notebooks.difference(path) == []


def test_there_are_ten():
    assert len(PATHS) == 10


def written(folder, code):
    """Write a notebook with a cell of code; return its path."""
    path = folder / "small.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Title"), new_code_cell(code)]), path)
    return path


def printed(path):
    """Return the outputs of the cell of code, as stored."""
    return nbformat.read(path, as_version=4).cells[1].outputs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the notebooks of a run of the program that stores them."""
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["notebooks"])
    return tmp_path


def test_a_notebook_that_was_stored_prints_the_same_and_one_that_was_changed_does_not(folder):
    path = written(folder, "print(6 * 7)")
    assert notebooks.main() == 0
    assert [output.text for output in printed(path)] == ["42\n"]
    assert notebooks.difference(path) == []
    path.write_text(path.read_text(encoding="utf-8").replace('"42', '"41'), encoding="utf-8")
    found = notebooks.difference(path)
    assert [line.strip() for line in found if line[0] in "+-"][2:] == [
        '-      "41\\n"',
        '+      "42\\n"',
    ]


def test_what_another_run_would_change_is_not_stored(folder):
    code = """import sys, pandas
print("a line of the JVM", file=sys.stderr)
print("said")
pandas.DataFrame({"a": [1]})"""
    path = written(folder, code)
    assert notebooks.main() == 0
    said, table = printed(path)
    assert said.text == "said\n"
    assert sorted(table.data) == ["text/html", "text/plain"]
    assert "<td>1</td>" in table.data["text/html"]
    assert "style scoped" not in table.data["text/html"]
    text = path.read_text(encoding="utf-8")
    assert "iopub" not in text
    assert sys.version.split()[0] not in text


def test_a_cell_that_raises_is_told_and_not_stored(folder, capsys):
    path = written(folder, "1 / 0")
    before = path.read_text(encoding="utf-8")
    assert notebooks.main() == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == before
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        notebooks.difference(path)


def test_cells_see_neither_this_repository_nor_each_others_folders(folder):
    code = "import os, sys\nprint(os.listdir(), any('scripts' in os.listdir(p or '.') for p in sys.path if os.path.isdir(p or '.')))"
    path = written(folder, code)
    assert notebooks.main() == 0
    assert [output.text for output in printed(path)] == ["[] False\n"]
