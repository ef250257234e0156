"""No comment or docstring opens with a relative clause: it names the thing (CONTRIBUTING, English, rule 3)."""

import re
from pathlib import Path

from tests.test_architecture import FOLDERS, sources

ROOT = Path(__file__).resolve().parent.parent
#: Comments that still open so. The number only falls.
BUDGET = 42
#: The marks of comments, by the end of a file's name. Docstrings have their own.
MARKS = {".py": "#:?", ".pyi": "#:?", ".rs": "//[/!]?", ".sh": "#"}
CLAUSE = r"\s*(?:What|Who|Whom|Whose|Whether|Where|Why)\b"


def clauses(text, suffix):
    """Return the lines of a file at which a comment or docstring opens with a relative clause."""
    comment = re.compile(rf"\s*{MARKS[suffix]}")
    opening = re.compile(rf'\s*(?:{MARKS[suffix]}|r?"""){CLAUSE}')
    before, found = "", []
    for number, line in enumerate(text.splitlines(), 1):
        if opening.match(line) and not (comment.match(line) and comment.match(before)):
            found.append(number)
        before = line
    return found


def test_no_more_comments_open_with_a_relative_clause():
    looked, wrong = 0, []
    for suffix in MARKS:
        for path in sources(ROOT, *FOLDERS, suffix=suffix):
            looked += 1
            lines = clauses(path.read_text(encoding="utf-8"), suffix)
            wrong += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    assert looked > 1000
    assert len(wrong) <= BUDGET, "\n".join(wrong)


def test_a_comment_that_opens_so_is_found():
    assert clauses('"""What it is."""\n#: Whether it is.\nx = 1  # What\n', ".py") == [1, 2]
    assert clauses("/// A field, of\n/// Who knows.\n//! Why.\n// Where it is.\n", ".rs") == []
    assert clauses("fn a() {}\n/// Why it failed.\n", ".rs") == [2]
