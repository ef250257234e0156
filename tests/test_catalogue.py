"""The lines under "How to reproduce" on each page raise the error that the page explains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import catalogue
from headgate.errors import ERRORS

pytestmark = pytest.mark.timeout(400)
#: Errors that need more than a few lines: a second machine or Python, a killed process, a damaged frame.
BY_HAND = {
    "HG-1102",
    "HG-1104",
    *(
        "HG-1201",
        "HG-1202",
        "HG-1203",
        "HG-1204",
        "HG-1205",
    ),  # findings of the doctor: tests/driver
    "HG-2301",
    "HG-3001",
    "HG-3003",
    "HG-3004",
    "HG-3005",
    "HG-3008",
    "HG-3101",
    "HG-4005",
    *("HG-5101", "HG-5102"),
    "HG-9001",
}


def blocks(kind):
    fence = re.compile(rf"^```{kind}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = [(code, text) for code in ERRORS for text in fence.findall(catalogue.page(code))]
    return [pytest.param(code, text, id=code) for code, text in found]


NATIVE, SPARK, SHELL = blocks("python"), blocks("python spark"), blocks("sh")


def run(command, code, **options):
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=290, **options
    )
    said = done.stdout + done.stderr
    assert f"[{code}]" in said, said
    assert f"python -m headgate explain {code}" in said


@pytest.mark.soak
@pytest.mark.parametrize(("code", "text"), NATIVE)
def test_the_lines_give_the_error(code, text):
    run([sys.executable, "-c", text], code)


@pytest.mark.soak
@pytest.mark.parametrize(("code", "text"), SPARK)
def test_the_lines_give_the_error_on_spark(code, text, tmp_path):
    environ = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    run([sys.executable, "-c", text], code, cwd=tmp_path, env=environ)


@pytest.mark.parametrize(("code", "text"), SHELL)
def test_the_command_gives_the_error(code, text):
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(["bash", "-c", text], code, env=environ)


def test_every_page_is_run_or_known_to_need_more():
    shown = {param.id for param in (*NATIVE, *SPARK, *SHELL)}
    assert len(shown) >= 15
    assert shown | BY_HAND == set(ERRORS)
    assert not shown & BY_HAND
