"""The error catalogue: four lines, one page per code, and errors that pickle."""

from __future__ import annotations

import ast
import importlib
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import catalogue, errors
from headgate.__main__ import main
from headgate._matches import close_matches
from headgate.errors import ERRORS, HeadgateError, WorkerPythonError, from_code
from headgate.observe.verdict import ADVICE
from headgate.spark.tasks.entry import unpickled

SECTIONS = ["What it means", "Why it happens", "What to do", "How to reproduce"]

BUILT_IN = {
    "OptionError": ValueError,
    "ClosedError": RuntimeError,
    "NotBuiltError": NotImplementedError,
    "PeerLostError": ConnectionError,
    "PartitionNotFoundError": LookupError,
    "UnknownColumnError": LookupError,
    "UnsupportedTypeError": TypeError,
    "SelectorError": ValueError,
    "SnapshotError": OSError,
    "StateError": ValueError,
    "PoolTooSmallError": MemoryError,
}


def raised(code: str) -> HeadgateError:
    return from_code(code, "what", asked="this", have="that", remedy="so", details={"n": 1})


@pytest.mark.parametrize("code", ERRORS)
def test_the_text_is_four_lines(code):
    assert str(raised(code)).splitlines() == [
        f"[{code}] what",
        "  asked   this        have  that",
        "  do one  so",
        f"  more    python -m headgate explain {code}",
    ]


@pytest.mark.parametrize("code", ERRORS)
def test_every_class_has_a_remedy_of_its_own(code):
    text = str(from_code(code, "what"))
    assert "\n  do one  " in text
    assert "asked" not in text
    assert "https://" not in text


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_has_its_page(code):
    text = catalogue.page(code)
    title, *_ = text.splitlines()
    assert title.startswith(f"# {code} · {ERRORS[code].__name__} · ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    for section in text.split("\n## ")[1:]:
        assert len(section.split("\n", 1)[1].strip()) > 20, section


def test_every_page_has_its_code():
    assert len(ERRORS) >= 26
    assert catalogue.codes() == sorted(ERRORS)


def test_the_reference_page_includes_every_page():
    reference = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
    included = re.findall(r"catalogue/pages/(HG-\d+)\.md", reference.read_text(encoding="utf-8"))
    assert included == sorted(ERRORS)


def test_pages_name_only_codes_that_exist():
    named = {code for page in map(catalogue.page, ERRORS) for code in re.findall(r"HG-\d+", page)}
    assert named <= set(ERRORS)


def test_classes_are_built_in_ones_where_python_has_the_word():
    by_name = {cls.__name__: cls for cls in ERRORS.values()}
    for name, builtin in BUILT_IN.items():
        assert issubclass(by_name[name], builtin)
        with pytest.raises(builtin, match="what"):
            raise by_name[name]("what")


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_survives_pickling(code):
    error = raised(code)
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.details == {"n": 1}
    assert copy.__notes__ == ["a note"]


def fail_with_a_cause(code):  # runs in a spawned child
    try:
        int("seven")
    except ValueError as cause:
        raise raised(code) from cause


def test_an_error_of_another_process_keeps_the_text_of_its_cause():
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(errors.UserFunctionError) as caught,
    ):
        pool.apply(fail_with_a_cause, ("HG-6001",))
    assert "invalid literal for int() with base 10: 'seven'" in caught.value.cause_text
    once_more = pickle.loads(pickle.dumps(caught.value))
    assert once_more.cause_text == caught.value.cause_text
    assert len(once_more.__notes__) == 1


def test_a_cause_given_as_text_is_shown_once():
    error = raised("HG-6002").caused_by("the disk is full").caused_by("the disk is full")
    assert error.__notes__ == ["caused by:\nthe disk is full"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__


@pytest.mark.parametrize("code", [2101, "2101", "HG-2101", "hg-2101", "hg2101"])
def test_codes_are_read_in_any_spelling(code):
    assert type(from_code(code, "what")) is errors.NotEnoughSlots


def test_an_unknown_code_of_a_newer_peer_is_named():
    error = from_code(2999, "what")
    assert type(error) is errors.InternalError
    assert "HG-2999" in str(error)
    assert error.details["code"] == "HG-2999"


def test_close_matches():
    names = ["tailnum", "TailNumber", "dep_delay", "carrier", ""]
    assert close_matches("tail_num", names)[0] == "tailnum"
    assert close_matches("delay", names) == ["dep_delay"]
    assert close_matches("zzz", names) == []
    assert len(close_matches("a", ["ab", "ac", "ad", "ae"])) <= 3


def test_explain_prints_a_page_and_the_list(capsys):
    assert main(["explain", "hg-2101"]) == 0
    assert capsys.readouterr().out.startswith("# HG-2101 · NotEnoughSlots")
    assert main(["explain", "NotEnoughSlots"]) == 0
    assert capsys.readouterr().out.startswith("# HG-2101 · NotEnoughSlots")
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(ERRORS)


@pytest.mark.parametrize(
    "name", ["segment_size", "spark.headgate.segmentSize", "HEADGATE_SEGMENT_SIZE"]
)
def test_explain_prints_an_option(name, capsys):
    assert main(["explain", name]) == 0
    said = capsys.readouterr().out
    assert said.startswith("segment_size, an option of ShuffleEnvironment and exchange()\n")
    for line in ("values   4k to 64m", "default  256k", "conf     spark.headgate.segmentSize"):
        assert line in said
    assert main(["explain", "segment_sise"]) == 2
    assert "close   segment_size" in capsys.readouterr().err


def test_explain_says_what_only_an_argument_can_be(capsys):
    assert main(["explain", "map_schema"]) == 0
    said = capsys.readouterr().out
    assert "a DDL string, a StructType or a pyarrow.Schema" in said
    assert "conf " not in said


@pytest.mark.parametrize("kind", ADVICE)
def test_explain_says_when_a_verdict_holds(kind, capsys):
    assert main(["explain", kind]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{kind}, a verdict")
    assert re.search(r"^  given if +\S+", said, re.MULTILINE)


@pytest.mark.parametrize("wrong", ["HG-2111", "2110", "NotEnoughSlot"])
def test_explain_offers_close_codes(wrong, capsys):
    assert main(["explain", wrong]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert f"there is no error, no option and no verdict '{wrong}'" in said.err
    assert "HG-2101" in said.err


def test_the_command_line_works_without_a_terminal_and_without_a_locale():
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "explain", "HG-5001"],
        capture_output=True,
        check=True,
        timeout=60,
        env=os.environ | {"LC_ALL": "C"},
    )
    assert "HG-5001 · PoolTooSmallError" in done.stdout.decode()


def test_errors_is_a_leaf():
    names = set()
    for file in (Path(errors.__file__), Path(errors.__file__).with_name("_error.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module)
    standard = {"__future__", "typing", "collections.abc", "re", "traceback"}
    assert names == standard | {"headgate._error"}


def test_a_command_whose_output_nobody_reads_any_more_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "explain", "HG-6001"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_function_of_a_module_that_tasks_do_not_find_says_how_to_send_it(tmp_path, monkeypatch):
    (tmp_path / "beside_the_script.py").write_text("def step(batches):\n    return batches\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("beside_the_script")
    task = pickle.dumps(module.step)
    assert unpickled(task) is module.step
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    monkeypatch.delitem(sys.modules, "beside_the_script")
    with pytest.raises(
        WorkerPythonError, match="does not find the module beside_the_script"
    ) as error:
        unpickled(task)
    assert 'addPyFile("beside_the_script.py")' in error.value.remedy
