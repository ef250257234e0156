"""Batches for a sink are cast to its schema if no value changes, and else refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from headgate.errors import SchemaMismatchError
from headgate.sink.file_writer import conform

NOON = dt.datetime(2020, 2, 29, 12)  # noqa: DTZ001 - no time zone


def batch_of(value, kind):
    return pa.record_batch([pa.array([value, None], kind)], names=["x"])


@pytest.mark.parametrize(
    ("value", "kind", "to"),
    [
        (NOON, pa.timestamp("us"), pa.date32()),
        (NOON, pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (NOON, pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (1.5, pa.timestamp("ns"), pa.timestamp("us")),
        (0.1, pa.float64(), pa.float32()),
        (1.5, pa.float64(), pa.int64()),
        (2**53 + 1, pa.int64(), pa.float64()),
        (300, pa.int64(), pa.int8()),
        (Decimal("12345678901234567890.25"), pa.decimal128(38, 2), pa.float64()),
        (Decimal("1.25"), pa.decimal128(5, 2), pa.decimal128(5, 1)),
        ("007", pa.string(), pa.int64()),
        ([0.1], pa.list_(pa.float64()), pa.list_(pa.float32())),
    ],
)
def test_a_value_that_may_change(value, kind, to):
    value = 1 if kind == pa.timestamp("ns") else value
    with pytest.raises(SchemaMismatchError, match="column 'x'") as caught:
        conform(batch_of(value, kind), pa.schema([("x", to)]))
    assert caught.value.asked == f"x: {to}"
    assert caught.value.have == f"x: {kind}"


@pytest.mark.parametrize(
    ("value", "kind", "to"),
    [
        (7, pa.int8(), pa.int64()),
        (7, pa.int64(), pa.int8()),
        (7, pa.int64(), pa.float64()),
        (0.1, pa.float32(), pa.float64()),
        (NOON, pa.timestamp("s"), pa.timestamp("us")),
        (Decimal("1.50"), pa.decimal128(5, 2), pa.decimal128(38, 1)),
        ("a", pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        (None, pa.null(), pa.int64()),
    ],
)
def test_a_value_that_is_kept(value, kind, to):
    batch = batch_of(value, kind)
    kept = conform(batch, pa.schema([("x", to)]))
    assert kept.schema.field("x").type == to
    assert kept.to_pylist() == batch.to_pylist()


def test_a_null_where_none_may_be():
    with pytest.raises(SchemaMismatchError, match="it has nulls"):
        conform(batch_of(1, pa.int64()), pa.schema([pa.field("x", pa.int64(), nullable=False)]))
