"""The RDD of a DataFrame is created while another thread is still creating one."""

import ast
import functools
import threading
from pathlib import Path

import pytest

import headgate.spark
from headgate.spark.driver.scheduler.rows import rdd_of

#: Limit in seconds for calls that take milliseconds.
LIMIT = 10.0


class Table:
    """A DataFrame with the property ``rdd``, which another thread may be computing."""

    def __init__(self, name, entered=None, release=None):
        self.name, self.entered, self.release = name, entered, release

    def compute(self):
        if self.entered is not None:
            self.entered.set()
            assert self.release.wait(LIMIT)
        return f"rows of {self.name}"


class CachedTable(Table):
    rdd = functools.cached_property(Table.compute)
    rdd.__set_name__(Table, "rdd")


class PlainTable(Table):
    rdd = property(Table.compute)


@pytest.mark.parametrize("kind", [CachedTable, PlainTable])
def test_an_rdd_is_made_while_another_thread_makes_one(kind):
    entered, release = threading.Event(), threading.Event()
    slow, made = kind("one", entered, release), []
    first = threading.Thread(target=lambda: slow.rdd, daemon=True)
    second = threading.Thread(target=lambda: made.append(rdd_of(kind("two"))), daemon=True)
    first.start()
    assert entered.wait(LIMIT)
    second.start()
    second.join(5)
    release.set()
    first.join(LIMIT)
    assert made == ["rows of two"]


def test_no_other_file_reads_the_property():
    folder = Path(headgate.spark.__file__).parent
    readers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "rdd" and _is_of_python(node.value)
    }
    assert readers == {"driver/scheduler/rows.py"}


def _is_of_python(value):
    """Return True if the value may be a DataFrame. The JVM's own RDDs come from ``_jrdd``."""
    return not (isinstance(value, ast.Attribute) and value.attr == "_jrdd")
