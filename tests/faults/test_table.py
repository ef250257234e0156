"""Every test that the table of faults names exists, and every fault has a row."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`([\w/]+\.(?:py|rs))::(\w+)`")
#: Of the table; they are never given away again.
NUMBERS = range(1, 36)
#: What stands where a test is still to come.
OPEN = ("not yet",)


def rows_of(text):
    """Return the cells of each row: number, fault, what happens, tests."""
    lines = [line for line in text.splitlines() if re.match(r"\| *\d+ *\|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def missing(text):
    """Return the number of tests that are named, and those that do not exist."""
    named = NAMED.findall(text)
    return len(named), [f"{file}::{name}" for file, name in named if not exists(file, name)]


def exists(file, name):
    path = ROOT / file if file.startswith("rust_core/") else ROOT / "tests" / file
    if not path.is_file():
        return False
    keyword = "fn" if path.suffix == ".rs" else "def"
    return re.search(rf"^ *{keyword} {name}\(", path.read_text("utf-8"), re.MULTILINE) is not None


def test_every_test_that_is_named_exists():
    text = PAGE.read_text("utf-8")
    looked, gone = missing(text)
    assert looked >= 60
    assert not gone, "\n".join(gone)
    assert missing("`data_plane/plane.py::no_such_test` `no_such.py::test_x`")[1] == [
        "data_plane/plane.py::no_such_test",
        "no_such.py::test_x",
    ]


def test_every_fault_has_a_row_with_a_test_or_a_reason():
    rows = rows_of(PAGE.read_text("utf-8"))
    assert [int(row[0]) for row in rows] == list(NUMBERS)
    for number, fault, happens, tests in rows:
        assert fault, f"row {number} names no fault"
        assert happens, f"row {number} says nothing of what happens"
        assert NAMED.search(tests) or tests.startswith(OPEN), f"row {number} has no test: {tests}"
        if tests.startswith(OPEN):
            assert happens.startswith("Not yet"), f"row {number} promises what no test shows"
        rest = NAMED.sub("", tests).strip()
        assert rest in ("", *OPEN), f"row {number} names tests in another way: {rest}"


def test_every_test_of_the_network_is_in_the_table():
    text = PAGE.read_text("utf-8")
    named = {name for file, name in NAMED.findall(text) if file.startswith("faults/test_network_")}
    # The proxy is a tool, and some tests only show that the others see something.
    tools = {"test_network_proxy.py"}
    looked = 0
    for path in sorted((ROOT / "tests" / "faults").glob("test_network_*.py")):
        if path.name in tools:
            continue
        for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            looked += 1
            assert name in named or name.startswith(("test_whatever_", "test_two_consumers_")), name
    assert looked >= 20
