"""Ctrl-C ends `make test` as a whole: the tests of Rust in the background, and what has not begun."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.kit.processes import kill_all, marked
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
#: Stands for cargo: its tests are a process of their own, which runs for long.
CARGO = """#!/usr/bin/env bash
[[ "$*" != *--no-run* ]] || exit 0
sleep 300 &
echo cargo >>"$LOG"
wait
"""
#: Stands for pytest, which handles an interrupt and ends with the status 2.
PYTEST = """#!/usr/bin/env bash
trap 'kill "$!"; exit 2' INT
sleep 300 &
echo "${*: -1}" >>"$LOG"
wait
"""


@pytest.fixture
def clone(tmp_path):
    """Return a folder with the script, and with programs that stand for those that it runs."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "rust_core").mkdir()
    for name in ("env.sh", "test.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    programs = {
        "scripts/develop.sh": "#!/bin/sh\n",
        "scripts/class_archive.sh": "#!/bin/sh\n",
        ".cargo/bin/cargo": CARGO,
        ".venv/bin/python": PYTEST,
    }
    for name, text in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_tests_and_begins_no_more(clone, number, status):
    log = clone / "log"
    environ = os.environ | {"HOME": str(clone), "LOG": str(log), "TMPDIR": str(clone)}
    running = subprocess.Popen(
        # A shell cannot handle a signal that was ignored when it began.
        ["env", "--default-signal=INT,TERM", clone / "scripts" / "test.sh"],
        env=environ | {"CARGO_TARGET_DIR": str(clone / "target")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def begun():
        return sorted(log.read_text(encoding="utf-8").splitlines()) if log.exists() else []

    try:
        wait_until(lambda: len(begun()) == 2, "both kinds of tests have begun")
        assert len(marked(str(log), "LOG")) >= 5
        # As a terminal does: to all processes of its group.
        os.killpg(running.pid, number)
        assert running.wait(30) == status
        wait_until(lambda: marked(str(log), "LOG") == [], "no process is left", 30)
    finally:
        kill_all(str(log), "LOG")
    assert begun() == ["cargo", "tests/stream"]
    assert not list(clone.glob("tmp.*"))
