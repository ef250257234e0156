"""Each name in the column "Headgate" of docs/streams-and-flink.md exists."""

import inspect
import re

import pytest
from tests.kit.pages import ROOT

import headgate.sink
import headgate.source
import headgate.stream

MODULES = (headgate.stream, headgate.source, headgate.sink)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}
#: Words of a code span: a class and a member, or one name; what is in quotes is no name.
WORDS = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


def members(of):
    """Return the names of a class's members and fields."""
    return set(dir(of)) | set(inspect.get_annotations(of)) if inspect.isclass(of) else set()


def arguments(of):
    """Return the names of the arguments of a function, or of all functions of a class."""
    if inspect.isclass(of):
        functions = [value for _, value in inspect.getmembers(of, inspect.isfunction)]
        return {name for function in functions for name in inspect.signature(function).parameters}
    return set(inspect.signature(of).parameters) if callable(of) else set()


MEMBERS = {name for one in PUBLIC.values() for name in members(one)}
ARGUMENTS = {name for one in PUBLIC.values() for name in arguments(one)}
#: Members of a job plan, and columns of results.
OTHERS = {"stages", "window_start", "window_end", "iterate", "_change_type"}


def unknown_names(page):
    """Return the number of names in a page's tables, and those that do not exist."""
    looked, unknown = 0, []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 2 or cells[0] in {"Flink", "---"}:
            continue
        for span in re.findall(r"`([^`]+)`", " ".join(cells[1:])):
            for word in WORDS.findall(re.sub(r'"[^"]*"', "", span)):
                looked += 1
                first, _, member = word.partition(".")
                if member:
                    is_known = first in PUBLIC and member in members(PUBLIC[first])
                else:
                    is_known = word in PUBLIC or word in MEMBERS | ARGUMENTS | OTHERS
                if not is_known:
                    unknown.append(word)
    return looked, unknown


def test_each_name_exists():
    looked, unknown = unknown_names(
        (ROOT / "docs" / "streams-and-flink.md").read_text(encoding="utf-8")
    )
    assert looked > 120
    assert unknown == []


@pytest.mark.parametrize("word", ["DataStream.flat_map()", "SinkTo", "latenes=", "Nothing.sink"])
def test_a_name_that_does_not_exist_is_found(word):
    wrong = word.rstrip("()=")
    assert unknown_names(f"| `x` | `{word}` | `stream` |") == (2, [wrong])
