"""The comparison of instruction counts: an increase fails and names the workload and the amount."""

import json

import pytest
from benches import instructions

TOOLS = {"compiler": "rustc 1", "valgrind": "valgrind 1"}
BEFORE = {"hash": 1000, "emit": 2000}
RECORD = {**TOOLS, "commit": "abc", "counts": BEFORE}


def test_the_total_of_a_profile_is_read():
    profile = "# callgrind format\nevents: Ir\nfn=(1) f\n16 400\n\ntotals: 12345\n"
    assert instructions.total(profile) == 12345
    for nothing in ("events: Ir\ntotals: 0\n", "events: Ir\n"):
        with pytest.raises(ValueError, match="one total above 0"):
            instructions.total(nothing)


def test_as_many_as_recorded_and_a_little_more_pass(capsys):
    instructions.check(RECORD, TOOLS, {"hash": 1015, "emit": 2000})
    assert "2 counts as recorded" in capsys.readouterr().err


def test_more_than_the_tolerance_fails_and_says_what_grew_and_how_to_record():
    with pytest.raises(SystemExit) as raised:
        instructions.check(RECORD, TOOLS, {"hash": 1100, "emit": 2000})
    words = str(raised.value)
    assert "hash: 1,000 -> 1,100 instructions, +10.0%" in words
    assert "emit" not in words
    assert "make bench NAME=instructions" in words


def test_fewer_pass_and_are_worth_recording(capsys):
    instructions.check(RECORD, TOOLS, {"hash": 900, "emit": 2000})
    assert "hash: 1,000 -> 900 instructions, -10.0%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"hash": 1000}, "emit: recorded, but there is no such workload"),
        ({**BEFORE, "new": 5}, "new: 5 instructions, not recorded"),
    ],
)
def test_workloads_that_come_and_go_are_to_be_recorded(counts, words):
    with pytest.raises(SystemExit, match=words):
        instructions.check(RECORD, TOOLS, counts)


def test_programs_of_another_compiler_are_not_compared(capsys):
    others = {**TOOLS, "compiler": "rustc 2"}
    instructions.check(RECORD, others, {"hash": 9999, "emit": 2000})
    said = capsys.readouterr().err
    assert "not compared, compiler is rustc 2, recorded with rustc 1" in said
    assert "hash: 1,000 -> 9,999" in said


def test_without_valgrind_it_says_so_and_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(instructions.shutil, "which", lambda _: None)
    instructions.main(["--check"])
    assert "not counted, there is no valgrind" in capsys.readouterr().err


def test_what_is_recorded_are_counts():
    record = json.loads(instructions.RECORDED.read_text(encoding="utf-8"))
    assert {"emit", "scatter", "encode of numbers", "decode of numbers"} <= set(record["counts"])
    assert all(count > 0 for count in record["counts"].values())
