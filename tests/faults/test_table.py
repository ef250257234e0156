"""Every test named in docs/faults.md exists, and every fault has a section there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`([\w/]+\.(?:py|rs))::(\w+)`")
#: Numbers of the faults. A number is never reused.
NUMBERS = range(1, 39)
#: Texts that mark a fault without a test.
OPEN = ("not yet",)


def faults_of(text):
    """Return number, fault, what happens and tests of each section with a number."""
    sections = re.findall(
        r"^### (\d+)\. ([^\n]*)\n\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return [
        (number, fault, *(part.strip() for part in body.partition("\n- ")[::2]))
        for number, fault, body in sections
    ]


def missing(text):
    """Return the number of named tests, and the names of those that do not exist."""
    named = NAMED.findall(text)
    return len(named), [f"{file}::{name}" for file, name in named if not exists(file, name)]


def path_of(file):
    return ROOT / file if file.startswith("rust_core/") else ROOT / "tests" / file


def body(text, name):
    """Return the source of one test, with the values of the constants that it uses."""
    begin = re.search(rf"^( *)(?:def|fn) {name}\(", text, re.MULTILINE)
    rest = text[begin.end() :]
    end = re.search(rf"\n{begin[1]}(?:#\[|@|def |fn |class |[A-Z_]+ ?=|}})", rest)
    source = rest[: end.start()] if end else rest
    constants = re.findall(r"^(?:const )?([A-Z][A-Z_]+)(?:: [\w.]+)? = (.*)$", text, re.MULTILINE)
    return "\n".join([source, *(value for known, value in constants if known in source)])


def unseen_seconds(happens, bodies):
    """Return how many times in seconds a fault promises, and those that none of its tests has."""
    promised = re.findall(r"\b(?:within|after|for) (a|\d+) seconds?\b|\((\d+) s\)", happens)
    numbers = ["1" if words == "a" else words or bracket for words, bracket in promised]
    seen = [n for n in numbers if any(re.search(rf"\b{n}\b", text) for text in bodies)]
    return len(numbers), sorted(set(numbers) - set(seen))


def exists(file, name):
    path = path_of(file)
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


def test_every_fault_has_a_test_or_a_reason():
    faults = faults_of(PAGE.read_text("utf-8"))
    assert [int(fault[0]) for fault in faults] == list(NUMBERS)
    for number, fault, happens, tests in faults:
        assert fault, f"fault {number} names no fault"
        assert happens, f"fault {number} does not describe the behaviour"
        assert NAMED.search(tests) or tests.startswith(OPEN), f"fault {number} has no test: {tests}"
        if tests.startswith(OPEN):
            assert happens.startswith("Not yet"), f"fault {number} has a promise without a test"
        rest = NAMED.sub("", tests).replace("\n- ", "").strip()
        assert rest in ("", *OPEN), f"fault {number} has a test in another format: {rest}"


def test_the_seconds_that_a_fault_promises_are_in_one_of_its_tests():
    looked = 0
    for number, _, happens, tests in faults_of(PAGE.read_text("utf-8")):
        bodies = [
            body(path_of(file).read_text("utf-8"), name) for file, name in NAMED.findall(tests)
        ]
        promised, unseen = unseen_seconds(happens, bodies)
        looked += promised
        assert not unseen, f"fault {number} promises {unseen} s, which none of its tests has"
    assert looked >= 5
    text = "LIMIT = 5.0\n\ndef test_a():\n    wait(LIMIT)\n\n\ndef test_b():\n    wait(7)\n"
    assert unseen_seconds("ends within 5 seconds", [body(text, "test_a")]) == (1, [])
    assert unseen_seconds("ends within 5 seconds", [body(text, "test_b")]) == (1, ["5"])
    assert unseen_seconds("lost after the limit (7 s)", [body(text, "test_a")]) == (1, ["7"])


def test_every_test_of_the_network_is_on_the_page():
    text = PAGE.read_text("utf-8")
    named = {name for file, name in NAMED.findall(text) if "/test_network_" in file}
    # The proxy is a tool. The excepted tests only show that the others can fail.
    tools = {"test_network_proxy.py"}
    looked = 0
    for path in sorted((ROOT / "tests").rglob("test_network_*.py")):
        if path.name in tools:
            continue
        for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            looked += 1
            assert name in named or name.startswith(("test_whatever_", "test_two_consumers_")), name
    assert looked >= 20
