"""A pushed filter keeps exactly the rows that Spark would keep."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "EqualTo"):
    pytest.skip("this version of Spark pushes no filters", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402 - after the check
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from headgate.spark.filters import pushed_expression  # noqa: E402

NAN = float("nan")
TABLE = pa.table(
    {
        "n": pa.array([1, 2, None, -3, 2], pa.int64()),
        "s": ["a", "ab", None, "", "b%"],
        "d": pa.array([dt.date(2024, 1, i) if i else None for i in (1, 2, 0, 4, 5)]),
        "m": pa.array([Decimal(x) if x else None for x in ("1.50", "2.00", "", "-7.25", "0.01")]),
        "x": pa.array([1.0, float("nan"), None, -0.0, 0.0]),
        "b": [True, None, False, True, False],
    }
)


def kept(pushed):
    found = pushed_expression(pushed, TABLE.schema)
    assert found is not None
    return ds.dataset(TABLE).to_table(filter=found).column("n").to_pylist()


@pytest.mark.parametrize(
    ("pushed", "rows"),
    [
        (EqualTo(("n",), 2), [2, 2]),
        (EqualNullSafe(("n",), None), [None]),
        (EqualNullSafe(("n",), 1), [1]),
        (GreaterThan(("n",), 1), [2, 2]),
        (GreaterThanOrEqual(("n",), 1), [1, 2, 2]),
        (LessThan(("n",), 1), [-3]),
        (LessThanOrEqual(("n",), 1), [1, -3]),
        (In(("n",), (1, -3)), [1, -3]),
        (IsNull(("s",)), [None]),
        (IsNotNull(("x",)), [1, 2, -3, 2]),
        (Not(EqualTo(("n",), 2)), [1, -3]),
        (Not(IsNull(("n",))), [1, 2, -3, 2]),
        (Not(EqualNullSafe(("n",), 2)), [1, None, -3]),
        (StringStartsWith(("s",), "a"), [1, 2]),
        (StringEndsWith(("s",), "b"), [2]),
        (StringContains(("s",), "%"), [2]),
        (EqualTo(("d",), dt.date(2024, 1, 4)), [-3]),
        (GreaterThan(("m",), Decimal("1.50")), [2]),
        (EqualTo(("b",), True), [1, -3]),
        # Spark's NaN equals itself and is the largest number.
        (EqualTo(("x",), 0.0), [-3, 2]),
        (EqualTo(("x",), NAN), [2]),
        (EqualNullSafe(("x",), NAN), [2]),
        (GreaterThan(("x",), 0.5), [1, 2]),
        (Not(GreaterThan(("x",), 1.0)), [1, -3, 2]),
        (LessThan(("x",), NAN), [1, -3, 2]),
        (LessThanOrEqual(("x",), NAN), [1, 2, -3, 2]),
        (In(("x",), (-0.0, NAN)), [2, -3, 2]),
    ],
    ids=str,
)
def test_the_rows_that_the_filter_is_true_for(pushed, rows):
    assert kept(pushed) == rows


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("n", "inner"), 1),
        EqualTo(("nowhere",), 1),
        EqualTo(("n",), "text"),
        EqualTo(("n",), 1 << 70),
        EqualTo(("x",), 1),
    ],
    ids=str,
)
def test_what_may_differ_is_left_to_spark(pushed):
    assert pushed_expression(pushed, TABLE.schema) is None


def test_in_keeps_no_null_and_its_negation_no_null_either():
    assert kept(In(("n",), (1, 2))) == [1, 2, 2]
    assert kept(Not(In(("n",), (1, 2)))) == [-3]
    assert kept(In(("n",), (1, None))) == [1]
    assert kept(Not(In(("n",), (1, None)))) == []
