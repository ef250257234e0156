"""Texts of users and strangers in log lines and lines of progress: one line, and nothing that a terminal obeys."""

import io
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from headgate._text import LOGGERS, plain
from headgate.spark.progress.surfaces import Terminal

HOSTILE = "\x1b[2J\x1b]0;title\x07a\r\nb\u2028c\u202ed\x9bm\ud800"
ROOT = Path(headgate.__file__).parent


@given(st.text())
def test_a_plain_text_prints_in_one_line_and_tells_what_was_there(text):
    shown = plain(text)
    assert shown.isprintable()
    assert (shown == text) == text.isprintable()
    if text.isascii() and "\\" not in text:
        assert shown.encode().decode("unicode_escape") == text


def test_all_loggers_are_known():
    found = set()
    for path in ROOT.rglob("*.py"):
        found |= set(
            re.findall(r'getLogger\("(headgate[^"]*)"\)', path.read_text(encoding="utf-8"))
        )
    assert found == set(LOGGERS)


class Shown:
    def __str__(self):
        return HOSTILE

    __repr__ = __str__


# That of HTTP lets only the first error of the application through, once the page was imported.
@pytest.mark.parametrize("name", [name for name in LOGGERS if not name.endswith(".http")])
@pytest.mark.parametrize("value", [HOSTILE, ValueError(HOSTILE), Shown()])
@pytest.mark.parametrize("form", ["%d: %s", "%d: %r"])
def test_a_record_is_one_line_whatever_its_values_are(name, value, form):
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        logger.error(form, 3, value)
    finally:
        logger.removeHandler(handler)
    text = lines.getvalue()
    assert text.startswith("3: ")
    assert text[:-1].isprintable()
    assert "title" in text


def test_a_traceback_has_lines_and_nothing_else(caplog):
    logger = logging.getLogger("headgate.stream")
    try:
        raise ValueError(HOSTILE.replace("\ud800", ""))
    except ValueError:
        logger.exception("the task failed")
    (record,) = caplog.records
    text = caplog.handler.format(record)
    assert "Traceback" in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert "test_a_traceback_has_lines" in text


def test_a_line_of_progress_is_one_line(monkeypatch):
    terminal = Terminal(io.StringIO())
    terminal._write(HOSTILE)
    assert terminal._stream.getvalue()[1:].isprintable()
