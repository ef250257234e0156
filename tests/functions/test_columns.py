"""Values of Python and pandas come as they are, or the error has a code and says which do not."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headgate as hg
from headgate._columns import column_of
from headgate.errors import SchemaMismatchError
from headgate.spark.ddl_cast import DdlCast

DAY, NOON = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)  # noqa: DTZ001 - it has no zone
#: Values that users return, alone and beside each other.
VALUES = [
    *(None, True, 1, -1, 2**53 + 1, 2**63, -(2**63) - 1, 2**200, 10**80, 1.0, 1.5, float("nan")),
    *(Decimal(1), Decimal("1.25"), Decimal("NaN"), Decimal("1e60"), Decimal("1e-90")),
    *(
        "a",
        "1",
        "\ud800",
        b"a",
        DAY,
        NOON,
        NOON.replace(tzinfo=dt.UTC),
        dt.time(1),
        dt.timedelta(1),
    ),
    *(np.int8(1), np.uint64(2**63), np.float32(1.5), np.datetime64("2024-02-29")),
    *(pd.NA, pd.NaT, pd.Timestamp(NOON), pd.Timedelta(1, "s")),
    *([1], [2**63], {"a": 1}, {1: 2}, {1}, (1, "a"), object(), 1j, print),
]
DECLARED = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 2)),
    *(pa.decimal128(20, 0), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us")),
    *(pa.timestamp("us", "UTC"), pa.duration("us"), pa.list_(pa.int64())),
    *(pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64())])),
]
ROWS = pa.record_batch({"k": [1, 2]})


def same(value, back):
    """Return True if a value came back as itself."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return back is None
    if isinstance(value, (float, Decimal)) and math.isnan(value):
        return back is None or math.isnan(back)
    if isinstance(value, (np.generic, pd.Timestamp, pd.Timedelta)):
        value = (
            value.item()
            if isinstance(value, np.generic)
            else value.to_pytimedelta()
            if isinstance(value, pd.Timedelta)
            else value.to_pydatetime()
        )
    if isinstance(value, (dict, tuple, set)):
        return back in (value, list(value), list(getattr(value, "items", list)()))
    if isinstance(value, bool) != isinstance(back, bool):
        return False
    return back == value


@pytest.mark.parametrize("declared", DECLARED, ids=str)
@pytest.mark.parametrize("way", ["dicts", "pandas", "one by one"])
def test_values_come_as_they_are_or_are_refused_with_a_code(declared, way):
    cast = DdlCast(pa.schema([("k", pa.int64()), ("v", declared)]), "reduce")
    came, remedies = 0, set()
    for first in VALUES:
        for second in (first, None, 1):
            given = iter([first, second])
            if way == "dicts":
                reduce = hg.per_key(
                    "k", lambda g, given=given: {"k": g["k"][0].as_py(), "v": next(given)}
                )
            elif way == "one by one":
                reduce = hg.per_key(
                    "k",
                    lambda g, given=given: [
                        pd.DataFrame(
                            {"k": [g["k"][0].as_py()], "v": pd.Series([next(given)], dtype=object)}
                        )
                    ],
                )
            else:
                reduce = hg.per_groups(
                    "k",
                    lambda g, _, given=given: pd.DataFrame(
                        {"k": g["k"].to_pylist(), "v": pd.Series(list(given), dtype=object)}
                    ),
                )
            try:
                made = pa.Table.from_batches(cast.all(reduce([ROWS])))
            except SchemaMismatchError as error:
                remedies.add(error.remedy)
                continue
            came += 1
            values = made["v"].to_pylist()
            assert all(map(same, (first, second), values)), (first, second, values)
    assert came >= 2
    assert all(remedies)


def test_numbers_beyond_64_bits_are_decimals():
    made = column_of([2**63, None, Decimal("0.5"), 1], "v", "the rows")
    assert made.to_pylist() == [2**63, None, Decimal("0.5"), 1]
    assert pa.types.is_decimal128(made.type)
    assert column_of([10**50], "v", "the rows").to_pylist() == [10**50]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([DAY, NOON], "dates and times without a zone"),
        ([NOON, NOON.replace(tzinfo=dt.UTC)], "times with a zone and times without"),
        ([NOON, 1], "numbers and times"),
        ([b"a", "a"], "bytes and text"),
        ([1, "a"], "values in 'v' that make no column"),
        ([2**63, "a"], "values in 'v' that make no column"),
        ([[2**63]], "values in 'v' that make no column"),
    ],
)
def test_values_that_arrow_would_change_are_refused(values, words):
    with pytest.raises(SchemaMismatchError, match=words):
        column_of(values, "v", "the rows")


def group(**columns):
    return pa.record_batch({"k": [1] * len(next(iter(columns.values()))), **columns})


def test_pandas_takes_and_gives_back_whole_numbers_beside_nulls():
    rows = group(v=[1, None, 3], flag=[True, None, False])
    seen = []
    reduce = hg.per_key("k", lambda df: seen.append(df) or df, as_="pandas")
    cast = DdlCast(rows.schema, "reduce")
    assert pa.Table.from_batches(cast.all(reduce([rows]))).to_pylist() == rows.to_pylist()
    reduce = hg.per_key("k", lambda df: seen.append(df) or df, as_="pandas_nullable")
    assert pa.Table.from_batches(reduce([rows])).to_pylist() == rows.to_pylist()
    assert [str(df["v"].dtype) for df in seen] == ["float64", "Int64"]
    assert str(seen[1]["flag"].dtype) == "boolean"


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1, None],
        [-(2**53), None],
        [[2**53 + 1, None]],
        [{"a": 2**53 + 1}, {"a": None}],
        [[{"a": [2**53 + 1, None]}]],
    ],
)
def test_pandas_gets_no_number_that_floats_do_not_hold(values):
    rows = group(v=values)
    with pytest.raises(SchemaMismatchError, match="other ones"):
        list(hg.per_key("k", lambda df: df, as_="pandas")([rows]))
    reduce = hg.per_key("k", lambda df: df, as_="pandas_nullable")
    if isinstance(values[0], int):
        assert pa.Table.from_batches(reduce([rows]))["v"].to_pylist() == values
    else:
        with pytest.raises(SchemaMismatchError, match="other ones"):
            list(reduce([rows]))


def test_nullable_types_of_all_widths():
    kinds = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    rows = group(**{str(kind): pa.array([1, None], kind) for kind in kinds})
    reduce = hg.per_key("k", lambda df: df, as_="pandas_nullable")
    made = pa.Table.from_batches(reduce([rows]))
    assert made.schema.types == rows.schema.types
    assert made.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("made", [None, [None], iter([None])], ids=["none", "list", "iterator"])
def test_none_is_no_rows_of_a_key(made):
    with pytest.raises(
        SchemaMismatchError, match=r"the function by key (returned|yielded) None"
    ) as caught:
        list(hg.per_key("k", lambda _: made)([ROWS]))
    assert "batch.slice(0, 0)" in caught.value.remedy
    assert list(hg.per_key("k", lambda g: g.slice(0, 0))([ROWS])) == []
    assert list(hg.per_key("k", lambda _: [])([ROWS])) == []


@pytest.mark.parametrize("library", ["pandas", "pandas_nullable"])
def test_a_nan_that_pandas_returns_is_a_null_in_a_dict_and_in_a_frame(library):
    rows = pa.record_batch({"k": ["a", "a", "b", None], "x": [None, None, 1.5, 2.0]})

    def as_dict(group):
        return {"k": group["k"].iloc[0], "m": group["x"].mean()}

    def as_frame(group):
        return pd.DataFrame({"k": group["k"].iloc[:1], "m": [group["x"].mean()]})

    def found(function):
        batches = hg.per_key("k", function, as_=library)([rows])
        return [row for batch in batches for row in batch.to_pylist()]

    right = [{"k": None, "m": 2.0}, {"k": "a", "m": None}, {"k": "b", "m": 1.5}]
    assert found(as_dict) == found(as_frame) == right


def test_a_nan_of_others_stays():
    rows = pa.record_batch({"k": ["a"], "x": [float("nan")]})
    (batch,) = hg.per_key("k", lambda group: {"x": group["x"][0].as_py()})([rows])
    assert math.isnan(batch["x"][0].as_py())
