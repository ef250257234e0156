"""Random Delta tables that Spark writes, with the features of the format: a seed is a table."""

import random
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from tests.kit.random_tables import RandomTable, quoted, random_rows

from headgate.spark.schema import arrow_schema

#: Name of a column -> its type in SQL.
COLUMNS = {
    "a": "int",
    "b": "tinyint",
    "c": "smallint",
    "f": "float",
    "x": "double",
    "d": "decimal(4, 2)",
    "s": "string",
    "day": "date",
    "t": "timestamp",
    "u": "timestamp_ntz",
    "raw": "binary",
    "ok": "boolean",
    "st": "struct<x: int, y: string, z: float>",
    "l": "array<struct<p: int, q: string>>",
    "m": "map<string, struct<z: int>>",
}
PARTITIONS = ["pi int", "ps string", "pd date", "pb boolean", "pn decimal(4, 2)", "px double"]
#: Type -> one that has all its values.
WIDER = {
    "tinyint": "smallint",
    "smallint": "int",
    "int": "bigint",
    "float": "double",
    "decimal(4,2)": "decimal(18,6)",
}
NEW_NAMES = ["d e", "x.y", "ü", "A", "_under", "a=b"]


@dataclass
class RandomDelta(RandomTable):
    """A Delta table.

    Attributes:
        version: the version to read; None for the newest.
    """

    version: int | None = None

    def read(self, spark):
        """Return a DataFrame of the table."""
        reader = spark.read.format("delta")
        if self.version is not None:
            reader = reader.option("versionAsOf", self.version)
        return reader.load(str(self.path))


def random_delta(seed, path, spark):
    """Write the table of a seed, and return it."""
    chosen = random.Random(f"delta {seed}")
    features = {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableTypeWidening": "true",
    }
    # deltalake does not read deletion vectors beside widened types.
    del features[chosen.choice(["delta.enableDeletionVectors", "delta.enableTypeWidening"])]
    features = {name: value for name, value in features.items() if chosen.random() < 0.7}
    names = chosen.sample(sorted(COLUMNS), chosen.randint(2, 7))
    columns = ["id bigint", *(f"{name} {COLUMNS[name]}" for name in names)]
    table, partitioned, with_features = f"delta.`{path}`", "", ""
    if chosen.random() < 0.4:
        columns.append(chosen.choice(PARTITIONS))
        partitioned = f"partitioned by ({columns[-1].split()[0]})"
    if features:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in features.items())
        with_features = f"tblproperties ({pairs})"
    spark.sql(
        f"create table {table} ({', '.join(columns)}) using delta {partitioned} {with_features}"
    )
    out = RandomDelta(path, None, [], False, False, [f"{columns} {partitioned} {features}"])
    steps = [_append, _append, *chosen.choices(STEPS, k=chosen.randint(0, 7))]
    for step in steps:
        text = ""
        try:
            text = step(chosen, spark, table, seed) or ""
            if text:
                spark.sql(text)
        except Exception as error:  # noqa: BLE001 - what the features do not allow
            text += f" failed: {str(error)[:100]}"
        out.written.append(f"{step.__name__} {text}")
    if chosen.random() < 0.15:
        out.version = chosen.choice(spark.sql(f"describe history {table}").collect()).version
    out.schema = out.read(spark).schema.simpleString()
    return out


def _append(chosen, spark, table, seed):
    del seed
    schema = spark.table(table).schema
    rows = _without_far_times(random_rows(chosen, arrow_schema(schema, "UTC"), 0.0))
    frame = spark.createDataFrame(rows, schema).coalesce(chosen.choice([1, 2]))
    frame.write.format("delta").mode("append").save(table[len("delta.`") : -1])


def _without_far_times(rows):
    """Return the rows without times that the 96 bits, in which Spark writes them here, do not reach."""
    for place, field in enumerate(rows.schema):
        if field.type == pa.timestamp("us", "UTC"):
            numbers = rows[place].cast(pa.int64())
            near = pc.and_(pc.greater(numbers, -(2**57)), pc.less(numbers, 2**61))
            rows = rows.set_column(place, field, pc.if_else(near, rows[place], None))
    return rows


def _delete(chosen, spark, table, seed):
    del spark, seed
    return f"delete from {table} where pmod(id, 5) = {chosen.randrange(5)}"


def _update(chosen, spark, table, seed):
    del spark, seed
    return f"update {table} set id = 7 where pmod(id, 3) = {chosen.randrange(3)}"


def _optimize(chosen, spark, table, seed):
    del chosen, spark, seed
    return f"optimize {table}"


def _add(chosen, spark, table, seed):
    name, kind = chosen.choice(sorted(COLUMNS.items()))
    columns = spark.table(table).columns
    if "st" in columns and chosen.random() < 0.5:
        return f"alter table {table} add column (st.w{seed} bigint)"
    return f"alter table {table} add column (more_{name} {kind})"


def _rename(chosen, spark, table, seed):
    del seed
    columns = spark.table(table).columns[1:]
    if "st" in columns and chosen.random() < 0.3:
        return f"alter table {table} rename column st.x to xx"
    old, new = chosen.choice(columns), chosen.choice(NEW_NAMES)
    return f"alter table {table} rename column {quoted(old)} to {quoted(new)}"


def _drop(chosen, spark, table, seed):
    del seed
    columns = spark.table(table).columns[1:]
    if "st" in columns and chosen.random() < 0.3:
        return f"alter table {table} drop column st.y"
    return f"alter table {table} drop column {quoted(chosen.choice(columns))}"


def _widen(chosen, spark, table, seed):
    del seed
    types = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    narrow = sorted(name for name, kind in types.items() if kind in WIDER)
    name = chosen.choice(narrow)
    return f"alter table {table} change column {quoted(name)} type {WIDER[types[name]]}"


STEPS = [
    _append,
    _append,
    _delete,
    _delete,
    _update,
    _optimize,
    _add,
    _rename,
    _drop,
    _widen,
    _widen,
]
