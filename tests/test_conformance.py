"""Every number that code and tests cite has its demand in docs/conformance.md, and every row its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"rust_core": {".rs"}, "python": {".py", ".pyi"}, "tests": {".py"}}

#: "spec 4.8, 9.4", "spec 8.1 to 8.4", "spec 4.5, 5": sections, as comments cite them.
COMMENT = re.compile(r"\bspec (\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)")
#: A test of a check: two digits, `spec_4_08_`. A test of a section: `spec_section_4_8_`.
NAME = re.compile(r"(?:\b|_)spec_(section_)?(\d+)_(\d+)(?=_)")
ROW = re.compile(r"^\| (§?\d+(?:\.\d+)?) \| (.*?) \| (.*?) \|", re.MULTILINE)


def cited(root):
    """Return each number that the files below cite, with one place, and names that say neither."""
    numbers, unclear = {}, []
    for folder, suffixes in FOLDERS.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in suffixes or path.resolve() == Path(__file__).resolve():
                continue
            text = path.read_text(encoding="utf-8")
            for words in COMMENT.findall(text):
                numbers |= dict.fromkeys(sections(words), path.name)
            for section, chapter, number in NAME.findall(text):
                if section:
                    numbers[f"§{chapter}.{number}"] = path.name
                elif len(number) == 2:
                    numbers[f"{chapter}.{number}"] = path.name
                else:
                    unclear.append(f"{path.name}: spec_{chapter}_{number}_")
    return numbers, unclear


def sections(words):
    """Return the sections of "4.8, 9.4" or "8.1 to 8.4"."""
    found = []
    for part in re.split(r", | and ", words):
        first, _, last = part.strip().partition(" to ")
        if not last:
            found.append(f"§{first}")
            continue
        (chapter, low), (_, high) = first.split("."), last.split(".")
        found += [f"§{chapter}.{number}" for number in range(int(low), int(high) + 1)]
    return found


def rows(page):
    """Return the demand and the tests of each number."""
    found = ROW.findall(page)
    numbers = [number for number, _, _ in found]
    assert len(numbers) == len(set(numbers)), "a number has two rows"
    return {number: (demand, tests) for number, demand, tests in found}


def missing_tests(page, root):
    """Return the tests and files that the rows name and that do not exist."""
    text, files = "", set()
    for folder, suffixes in FOLDERS.items():
        for path in (root / folder).rglob("*"):
            if path.suffix in suffixes:
                files.add(path.name)
                text += path.read_text(encoding="utf-8")
    gone = []
    for number, (_, tests) in rows(page).items():
        for name in re.findall(r"`([\w.]+)\*?`", tests):
            exists = name in files if "." in name else re.search(rf"(fn|def) \w*{name}", text)
            if not exists:
                gone.append(f"{number}: {name}")
    return gone


PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")


def test_every_number_that_is_cited_has_a_row():
    numbers, unclear = cited(ROOT)
    assert len(numbers) > 100
    assert not unclear, "\n".join(unclear)
    known = rows(PAGE)
    assert not {number: file for number, file in numbers.items() if number not in known}


def test_every_demand_is_one_sentence():
    demands = [demand for demand, _ in rows(PAGE).values()]
    assert len(demands) > 100
    for demand in demands:
        assert re.fullmatch(r"[A-Z][^.]*(\.\d[^.]*)*\.", demand), demand
        assert 20 < len(demand) < 260, demand


def test_the_tests_that_rows_name_exist():
    assert not missing_tests(PAGE, ROOT)


def test_every_row_is_cited():
    numbers, _ = cited(ROOT)
    assert not set(rows(PAGE)) - set(numbers)


@pytest.fixture
def small_tree(tmp_path):
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / "rust_core" / "a.rs").write_text(
        "//! Serves views (spec 4.8, 9.1 to 9.2).\nfn spec_4_08_blocks() {}\n", encoding="utf-8"
    )
    (tmp_path / "tests" / "test_b.py").write_text(
        "def test_spec_section_7_3_one(): ...\ndef test_spec_5_10_two(): ...\n", encoding="utf-8"
    )
    return tmp_path


def test_citations_of_each_kind_are_found(small_tree):
    numbers, unclear = cited(small_tree)
    assert set(numbers) == {"§4.8", "§9.1", "§9.2", "4.08", "§7.3", "5.10"}
    assert not unclear


def test_a_name_that_is_neither_check_nor_section_is_refused(small_tree):
    (small_tree / "tests" / "test_c.py").write_text(
        "def test_spec_4_8_x(): ...\n", encoding="utf-8"
    )
    assert cited(small_tree)[1] == ["test_c.py: spec_4_8_"]


def test_a_row_without_its_test_is_found(small_tree):
    page = "| 4.08 | It blocks. | `spec_4_08_*`, `a.rs` | |\n| 4.09 | No. | `spec_4_09_*`, `b.rs` | |\n"
    assert missing_tests(page, small_tree) == ["4.09: spec_4_09_", "4.09: b.rs"]
    with pytest.raises(AssertionError, match="two rows"):
        rows(page + page)
