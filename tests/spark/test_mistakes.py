"""Errors that users see if they make a mistake: mistakes.txt has calls and the exact text of their errors."""

import threading
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import functions
from tests.kit import stored
from tests.kit.masters import PYSPARK, in_modes

import headgate as hg
from headgate.sink import FileSink
from headgate.source.files import FileSource
from headgate.source.numbers import NumberSequenceSource
from headgate.spark import Input, exchange, filesystem, write
from headgate.testing import check, run

pytestmark = in_modes("auto")

FILE = Path(__file__).parent / "mistakes.txt"
MISTAKES = stored.stored(FILE)

TABLE = pa.table({"user": ["ann", "bob"], "at": [1, 2], "x": [0.5, 1.5]})
SCHEMA = pa.schema(
    [("user", pa.string()), ("at", pa.int64()), pa.field("x", pa.float64(), nullable=False)]
)


def same(batches):
    return batches


def of_two(left, right):
    return left


async def waits(batches):
    return batches


def holding(value):
    """Return a function that uses a value of the driver."""

    def counted(batches):
        return batches if value else []

    return counted


def reduced(reduce):
    """Run a function over two rows, as a task does."""
    return run(TABLE, by="user", reduce=reduce, schema=SCHEMA)


@pytest.fixture
def names(spark, tmp_path):
    """The names that the calls use."""
    df = spark.sql(
        "SELECT 'ann' AS user, 1L AS at, named_struct('zip', 1) AS place, map('a', 1) AS tags, "
        "interval '1' day AS days"
    )
    own = {
        "df": df,
        "spark": spark,
        "lock": threading.Lock(),
        "holding": holding,
        "sink": FileSink(tmp_path / "out"),
        "F": functions,
    }
    shared = (
        exchange,
        filesystem,
        write,
        same,
        of_two,
        waits,
        reduced,
        run,
        check,
        Input,
        FileSource,
        FileSink,
    )
    libraries = {"hg": hg, "pa": pa, "pl": pl, "pd": pd, "Numbers": NumberSequenceSource}
    return own | libraries | {one.__name__: one for one in shared} | {"TABLE": TABLE}


def said(code, names):
    try:
        result = eval(code, names)
    except Exception as error:  # noqa: BLE001 - the text says which
        return f"{type(error).__name__}: {error}"
    return f"no error: {result}"


@pytest.mark.skipif(
    PYSPARK < (4, 3), reason="some texts name types that Spark 4.0 and pandas 2 do not have"
)
def test_a_hundred_mistakes(names):
    stored.check(FILE, lambda code: said(code, names))


def test_each_says_what_to_do():
    assert len(MISTAKES) >= 100
    assert len({code for code, _ in MISTAKES}) == len(MISTAKES)
    for code, text in MISTAKES:
        if "[HG-" in text:
            assert "\n  do one  " in text, code
            assert "docs/options.md" not in text.split("do one")[1], code
