"""Names of columns and fields, as by and sort_within take them."""

import re

import pytest
from pyspark.sql import types as t

from headgate import HashSelector
from headgate.errors import SelectorError, UnknownColumnError, UnsupportedTypeError
from headgate.spark.plan.keys import Columns, for_spark, key_text, type_of

INNER = (
    t.StructType()
    .add("k", t.IntegerType())
    .add("x.y", t.StringType())
    .add("tags", t.ArrayType(t.IntegerType()))
    .add("Deep", t.StructType().add("n", t.LongType()))
)
NAMED = (
    t.StructType()
    .add("a", INNER)
    .add("a.dot", t.IntegerType())
    .add("b", t.StringType())
    .add("tick`ed", t.IntegerType())
    .add("days", t.DayTimeIntervalType())
    .add("many", t.MapType(t.IntegerType(), t.IntegerType()))
)


def keys(*names, case_sensitive=False, argument="by"):
    return Columns(NAMED, case_sensitive, "the input", argument).keys(names)


@pytest.mark.parametrize(
    ("name", "key", "in_spark", "kind"),
    [
        ("B", "b", "`b`", "string"),
        ("a.k", ("a", "k"), "`a`.`k`", "int"),
        ("a.deep.N", ("a", "Deep", "n"), "`a`.`Deep`.`n`", "bigint"),
        ("a.`x.y`", ("a", "x.y"), "`a`.`x.y`", "string"),
        ("a.dot", "a.dot", "`a.dot`", "int"),
        ("`a.dot`", "a.dot", "`a.dot`", "int"),
        ("tick`ed", "tick`ed", "`tick``ed`", "int"),
        ("`tick``ed`", "tick`ed", "`tick``ed`", "int"),
        (("a", "x.y"), ("a", "x.y"), "`a`.`x.y`", "string"),
    ],
)
def test_names_of_columns_and_fields(name, key, in_spark, kind):
    (found,) = keys(name)
    assert found == key
    assert for_spark(found) == in_spark
    assert type_of(NAMED, found) == kind
    assert key_text(found) == (key if isinstance(key, str) else ".".join(key))


@pytest.mark.parametrize(
    ("name", "said", "close"),
    [
        ("bb", "there is no column 'bb' in the input", ["b"]),
        ("a.kk", "there is no field 'kk' in column 'a' of the input", ["a.k"]),
        ("a.Deep.m", "there is no field 'm' in column 'a.Deep' of the input", []),
        ("b.k", "column 'b' has no fields, as its type is string", ["b"]),
        ("a..k", "there is no column 'a..k' in the input", []),
        ("a.", "there is no column 'a.' in the input", None),
        ("", "there is no column '' in the input", []),
        (".k", "there is no column '.k' in the input", None),
    ],
)
def test_a_name_that_is_none(name, said, close):
    with pytest.raises(UnknownColumnError, match=re.escape(said)) as caught:
        keys(name)
    if close is not None:
        assert caught.value.details["close"] == close


def test_case_matters_where_spark_says_so():
    assert keys("a.Deep.n", case_sensitive=True) == [("a", "Deep", "n")]
    with pytest.raises(UnknownColumnError) as caught:
        keys("a.deep.n", case_sensitive=True)
    assert caught.value.details["close"] == ["a.Deep"]


def test_types_that_cannot_be_hashed_or_sorted():
    assert keys("a", "a.tags") == ["a", ("a", "tags")]
    for name in ("days", "many"):
        with pytest.raises(UnsupportedTypeError, match="cannot be a key"):
            keys(name)
    assert keys("a.k", "b", "days", argument="sort_within") == [("a", "k"), "b", "days"]
    for name in ("a", "a.tags", "many"):
        with pytest.raises(UnsupportedTypeError, match="cannot be sorted by"):
            keys(name, argument="sort_within")


def test_a_selector_takes_fields_as_paths():
    assert HashSelector(["b", ("a", "k")]).paths == [("b",), ("a", "k")]
    for nothing in ([], [""], [()]):
        with pytest.raises(SelectorError, match="no columns"):
            HashSelector(nothing)
