"""Random filters over nulls, NaN and -0.0: Arrow's expressions are true, false and null where Spark's are."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import acero

from headgate.source import read
from headgate.spark.filters import condition, pushed_expression
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure

NAN = float("nan")
DAY, NOON = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001 - it has no zone
AT = NOON.replace(tzinfo=dt.UTC)
#: Column -> its type, its values, and how SQL writes one.
COLUMNS = {
    "flag": (pa.bool_(), [True, False], str),
    "small": (pa.int8(), [-128, 0, 127], "cast({} as tinyint)".format),
    "whole": (pa.int64(), [-(2**63) + 1, -1, 0, 2**53 + 1], "{}L".format),
    "price": (pa.decimal128(12, 2), [Decimal("-0.01"), Decimal("1.50"), Decimal(2)], None),
    "text": (pa.string(), ["", "a", "ab", "b%", "Zürich", "\U0001f30a", "NaN"], "'{}'".format),
    "day": (pa.date32(), [dt.date(1, 1, 1), DAY, dt.date(9999, 12, 31)], "date'{}'".format),
    "at": (pa.timestamp("us"), [NOON, NOON.replace(year=1904)], "timestamp_ntz'{}'".format),
    "moment": (pa.timestamp("us", "UTC"), [AT, AT.replace(year=1904)], "timestamp'{}'".format),
    "real": (pa.float64(), [NAN, -0.0, 0.0, 1.5, float("-inf")], "double('{}')".format),
    "single": (pa.float32(), [NAN, -0.0, 0.0, 1.5], "float('{}')".format),
}
SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
MATCHES = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}
TYPES = {name: about[0] for name, about in COLUMNS.items()}


def table():
    rows = 80
    chosen = random.Random(1)
    columns = {
        name: pa.array([chosen.choice([*values, None]) for _ in range(rows)], kind)
        for name, (kind, values, _) in COLUMNS.items()
    }
    return pa.table({"id": pa.array(range(rows), pa.int64()), **columns})


def written(name, value):
    """Return a value as SQL writes it."""
    if value is None:
        return "null"
    write = COLUMNS[name][2]
    return f"cast('{value}' as decimal(12,2))" if write is None else write(value)


def leaf(chosen):
    """Return a filter with one column: its kind, the column, the value, and the filter in SQL."""
    name = chosen.choice(list(COLUMNS))
    values = COLUMNS[name][1]
    kind = chosen.choice([*SIGNS, *SIGNS, "In", "In", "IsNull", "IsNotNull", *MATCHES])
    if kind in MATCHES:
        value = chosen.choice(["", "a", "b", "Z", "\U0001f30a"])
        return kind, "text", value, f"text like '{MATCHES[kind].format(value)}'"
    if kind in {"IsNull", "IsNotNull"}:
        return kind, name, None, f"{name} is {'not ' if kind == 'IsNotNull' else ''}null"
    if kind == "In":
        some = [chosen.choice([*values, None]) for _ in range(chosen.randint(1, 4))]
        return kind, name, some, f"{name} in ({', '.join(written(name, v) for v in some)})"
    value = chosen.choice([*values, *values, None] if kind == "EqualNullSafe" else values)
    return kind, name, value, f"{name} {SIGNS[kind]} {written(name, value)}"


def tree(chosen, depth):
    """Return a filter in SQL."""
    if depth == 0:
        kind, name, _, text = leaf(chosen)
        mirrored = kind in SIGNS and kind != "EqualNullSafe" and chosen.random() < 0.3
        if not mirrored:
            return text
        column, sign, value = text.split(" ", 2)
        turned = {"<": ">", ">": "<"}.get(sign[0], sign[0]) + sign[1:]
        assert column == name
        return f"{value} {turned} {column}"
    kind = chosen.choice(["and", "or", "not"])
    if kind == "not":
        return f"not ({tree(chosen, depth - 1)})"
    return f"({tree(chosen, depth - 1)}) {kind} ({tree(chosen, depth - 1)})"


def evaluated(expression, rows):
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["it"])),
    ]
    found = acero.Declaration.from_sequence(plan).to_table(use_threads=False)
    return found["it"].to_pylist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("filters")
    rows = table()
    pq.write_table(rows.slice(0, 50), path / "0.parquet", row_group_size=9)
    pq.write_table(rows.slice(50), path / "1.parquet")
    return str(path)


def answers(spark, folder, filters):
    """Return what Spark says of each filter for each row, in one query."""
    named = [f"({text}) as f{number}" for number, text in enumerate(filters)]
    rows = spark.read.parquet(folder).selectExpr("id", *named).orderBy("id").collect()
    return [[row[f"f{number}"] for row in rows] for number in range(len(filters))]


def test_each_condition_is_true_false_and_null_where_sparks_is(spark, folder):
    chosen, rows = random.Random(2), table()
    leaves = [leaf(chosen) for _ in range(150)]
    said = answers(spark, folder, [text for *_, text in leaves])
    for (kind, name, value, text), spark_says in zip(leaves, said, strict=True):
        expression = condition(kind, name, TYPES[name], value)
        assert expression is not None, text
        assert evaluated(expression, rows) == spark_says, text


def test_a_filter_that_spark_pushes_and_its_negation(spark, folder):
    sources = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(sources, "EqualTo"):
        pytest.skip("this version of Spark pushes no filters")
    chosen, rows = random.Random(3), table()
    leaves = [leaf(chosen) for _ in range(200)]
    said = answers(spark, folder, [f"not ({text})" for *_, text in leaves])
    translated = 0
    for (kind, name, value, text), spark_says in zip(leaves, said, strict=True):
        arguments = [] if kind in {"IsNull", "IsNotNull"} else [value]
        pushed = getattr(sources, kind)((name,), *arguments)
        expression = pushed_expression(sources.Not(pushed), rows.schema)
        if expression is not None:
            translated += 1
            assert evaluated(expression, rows) == spark_says, text
    assert translated > 100


def test_workers_read_the_rows_that_sparks_filter_keeps(spark, folder):
    chosen = random.Random(4)
    filters = [tree(chosen, chosen.randint(0, 3)) for _ in range(50)]
    filters += ["not (whole in (0, 1))", "not (text in ('a', 'b%') or flag)", "not flag"]
    said = answers(spark, folder, filters)
    df, translated, left = spark.read.parquet(folder), 0, set()
    for text, spark_says in zip(filters, said, strict=True):
        try:
            source = source_of(df.where(text).select("id"))
        except Unsure as why:
            left.add(str(why))
            continue
        translated += 1
        with read(source) as batches:
            ids = sorted(n for batch in batches for n in batch["id"].to_pylist())
        assert ids == [n for n, keeps in enumerate(spark_says) if keeps], text
    assert translated > 25
    # Spark did not write the files, and it computes some filters ahead.
    reasons = ("Gregorian", "LocalRelation", "Spark may skip")
    assert all(any(text in why for text in reasons) for why in left), left
