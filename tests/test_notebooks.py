"""The notebooks are stored as a reader wants them: executed, without errors, and without anything of the machine that ran them."""

import copy
import json
import re

import pytest
from benches import cookbook
from scripts.page_blocks import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
#: Notebooks whose job is a block of the cookbook.
OF_COOKBOOK = {"logs", "near-duplicates", "ranks", "sessions"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: Folders, addresses, times of the clock and of the day: what another run or machine would change.
ELSEWHERE = re.compile(
    r"(?<![\w.])/(?:root|home|tmp|work|usr|opt|var|Users)/|127\.0\.0\.1|localhost:|:\d{5}\b"
    r"|\b\d\d:\d\d:\d\d\b|\b20(?:2[4-9]|[3-9]\d)-\d\d-\d\d\b"
)


def loaded(path):
    return json.loads(path.read_text(encoding="utf-8"))


def texts(output):
    """Return the texts of an output, by kind."""
    if output["output_type"] == "stream":
        return {output["name"]: "".join(output["text"])}
    return {kind: "".join(text) for kind, text in output.get("data", {}).items()}


def wrong_in(notebook):
    """Return what is wrong with a notebook."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    said = [text for output in outputs for text in texts(output).items()]
    source = ["".join(cell["source"]) for cell in notebook["cells"]]
    wrong = []
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        wrong.append("not executed from the first cell to the last")
    if len(outputs) < 3:
        wrong.append("few outputs")
    if not any("<table" in text for kind, text in said if kind == "text/html"):
        wrong.append("no table")
    wrong += [f"error: {o['ename']}" for o in outputs if o["output_type"] == "error"]
    wrong += [
        f"output {kind}" for kind, _ in said if kind not in {"stdout", "text/html", "text/plain"}
    ]
    wrong += [
        f"of a machine or a time: {found[0]}"
        for text in [*(text for _, text in said), *source]
        if (found := ELSEWHERE.search(text))
    ]
    if notebook["metadata"] != METADATA or any(cell["metadata"] for cell in notebook["cells"]):
        wrong.append("metadata")
    if not source[0].startswith("# "):
        wrong.append("no title")
    return wrong


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_a_reader_wants_it(path):
    assert wrong_in(loaded(path)) == []


def test_there_are_ten():
    assert len(NOTEBOOKS) == 10


def change(path, value):
    def changed(notebook):
        *before, last = path
        found = notebook
        for key in before:
            found = found[key]
        found[last] = value

    return changed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (change(["cells", 1, "execution_count"], None), "not executed"),
        (change(["cells", 1, "outputs"], []), "no table"),
        (change(["cells", 1, "outputs", 0], {"output_type": "error", "ename": "E"}), "error: E"),
        (change(["cells", 1, "outputs", 0, "name"], "stderr"), "output stderr"),
        (change(["cells", 1, "outputs", 0, "text"], ["in /root/x\n"]), "of a machine"),
        (change(["cells", 1, "outputs", 0, "text"], ["http://localhost:4040\n"]), "of a machine"),
        (change(["cells", 1, "outputs", 0, "text"], ["at 12:30:01\n"]), "of a machine"),
        (change(["cells", 1, "outputs", 1, "data", "image/png"], "iVBO"), "output image/png"),
        (change(["cells", 1, "metadata"], {"execution": {}}), "metadata"),
        (change(["metadata", "language_info", "version"], "3.11.7"), "metadata"),
        (change(["cells", 0, "source"], ["words"]), "no title"),
    ],
)
def test_what_is_wrong_is_found(changed, said):
    table = {"output_type": "execute_result", "data": {"text/html": ["<table>"]}}
    print_ = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    title = {"cell_type": "markdown", "metadata": {}, "source": ["# Title"]}
    code = {"cell_type": "code", "metadata": {}, "source": ["a = 1"], "execution_count": 1}
    notebook = {
        "metadata": copy.deepcopy(METADATA),
        "cells": [title, {**code, "outputs": [print_, table, dict(print_)]}],
    }
    assert wrong_in(notebook) == []
    changed(notebook)
    assert any(line.startswith(said) for line in wrong_in(notebook)), wrong_in(notebook)


def test_the_page_of_notebooks_links_each():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(notebooks/([\w-]+)\.ipynb\)", page)
    assert sorted(linked) == [path.stem for path in NOTEBOOKS]


def test_links_of_notebooks_lead_somewhere():
    links = [
        (path, target)
        for path in NOTEBOOKS
        for cell in loaded(path)["cells"]
        if cell["cell_type"] == "markdown"
        for target in re.findall(r"\]\(([^)#\s]+)", "".join(cell["source"]))
    ]
    assert len(links) >= 10
    assert [link for link in links if not (link[0].parent / link[1]).exists()] == []


@pytest.mark.parametrize("name", sorted(OF_COOKBOOK))
def test_a_job_of_the_cookbook_is_its_block(name):
    (job,) = [job for job in cookbook.jobs() if job.name == name.replace("-", "_")]
    cells = ["".join(cell["source"]) for cell in loaded(FOLDER / f"{name}.ipynb")["cells"]]
    assert job.headgate.code.strip() in cells
