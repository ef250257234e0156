"""Each code block of the pages runs and prints what the page says, or says why it cannot run."""

import sys
from pathlib import Path

import pytest
from scripts import page_blocks
from tests.kit.pages import PAGES, ROOT, RUN_BY, found_in, name, running

PLAIN = running(on_spark=False)
#: Languages of blocks that are not Python.
OTHERS = {
    "dockerfile",
    "properties",
    "sh",
    "sql",
    "text",
    "yaml",
    "{eval-rst}",
    "{grid}",
    "{include}",
    "{toctree}",
}


def undecided(text):
    """Return the blocks of a page that neither run nor say why not."""
    wrong = [f"indented Python: {block}" for block in page_blocks.indented_python(text)]
    for block in page_blocks.blocks(text):
        line = f"line {block.line}: {block.language} {block.mark}".rstrip()
        if block.language == "python":
            reason = block.mark.removeprefix("not run: ")
            if block.mark and (reason == block.mark or len(reason.split()) < 3):
                wrong.append(f"{line}: say `python not run: REASON`")
        elif block.language not in OTHERS:
            wrong.append(f"{line}: what language is it?")
    return wrong


def test_each_block_runs_or_says_why_not():
    found = {name(page): undecided(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: wrong for page, wrong in found.items() if wrong} == {}
    assert sum(block.runs for page in PAGES for block in found_in(page)) >= 50


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("```python\na = 1\n```\n", 0),
        ("```python not run: it needs a cluster\na = 1\n```\n", 0),
        ("```python not run:\na = 1\n```\n", 1),
        ("```python skip\na = 1\n```\n", 1),
        ("```pyhton\na = 1\n```\n", 1),
        ("```\na = 1\n```\n", 1),
        ("words\n\n    a = 1\n    b = a\n", 1),
        ("words\n\n    exchange(a, by=b)\n", 1),
        ("words\n\n    make test\n", 0),
        ("```text\nwords\n\n    a = 1\n```\n", 0),
    ],
)
def test_a_block_that_nobody_runs_is_found(page, count):
    assert len(undecided(page)) == count


def test_pages_with_tests_of_their_own_have_them():
    for page, test in RUN_BY.items():
        assert Path(page).stem in (ROOT / test).read_text(encoding="utf-8")
        assert any(block.runs for block in found_in(ROOT / page))


@pytest.mark.parametrize("page", PLAIN, ids=name)
def test_the_blocks_print_what_the_page_says(page):
    assert page_blocks.wrong_with(found_in(page), Path(sys.executable)) == []


def test_there_are_pages_without_spark():
    assert len(PLAIN) >= 6


def checked(page):
    return page_blocks.wrong_with(page_blocks.blocks(page), Path(sys.executable))


def test_names_are_shared_and_outputs_are_compared():
    page = "```python\na = 1\n```\n\n```python\nprint(a)\n```\n\n```text\n{}\n```\n"
    assert checked(page.format(1)) == []
    (other,) = checked(page.format(2))
    assert other == "run 1: the block at line 6 prints:\n1\n"


def test_an_output_that_the_page_does_not_show_is_found():
    (wrong,) = checked("```python\nprint(1)\n```\n")
    assert "line 2 prints:\n1" in wrong


def test_an_error_names_the_line_of_the_page():
    (wrong,) = checked("# Title\n\n```python\na = 1\n\nraise ValueError(a)\n```\n")
    assert "line 6, in <module>\n" in wrong
    assert "ValueError: 1" in wrong


def test_a_page_that_ends_early_is_found():
    (wrong,) = checked("```python\nimport sys\n\nsys.exit(0)\n```\n")
    assert wrong.startswith("run 1: 0 of 1 blocks have ended")
