"""Random scans of random tables, read as workers read them and by Spark: a seed is a scan."""

import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from tests.kit.random_tables import FLAT, ZONES, confs_of, quoted, random_table

from headgate.errors import UnsupportedTypeError
from headgate.source import read
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.schema import arrow_schema

#: Scans of one table.
SCANS = 8
#: The reader's words for what it refuses, as no footer says that it is there.
REFUSED = (
    "times of 96 bits outside of the years 1 to 9999",
    "than its footer says",
)


@dataclass
class Report:
    """The outcomes of many scans.

    Attributes:
        workers: scans that workers read.
        reasons: reason without names and figures -> scans that Spark reads for it.
        examples: the same -> a reason with them.
        differences: one text for each scan that differs.
    """

    workers: int = 0
    reasons: Counter = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def left(self, why):
        """Count a scan that Spark reads."""
        reason = re.sub(r"/\S+|'[^']*'|[-\d]+", "*", why)
        reason = re.sub(r"(struct|list|map)<[^(]*>", "nested", reason)
        self.reasons[reason] += 1
        self.examples.setdefault(reason, why)

    def __iadd__(self, other):
        self.workers += other.workers
        self.reasons += other.reasons
        self.examples = {**other.examples, **self.examples}
        self.differences += other.differences
        return self

    def __str__(self):
        lines = [f"{self.workers} read by workers, {len(self.differences)} differ"]
        for reason, count in self.reasons.most_common():
            lines.append(f"{count:6} {reason}, such as: {self.examples[reason]}")
        return "\n".join([*lines, *self.differences])


def run(spark, folder, seed, count, make=random_table):
    """Compare the scans with the seeds from ``seed`` on; return a report.

    Args:
        spark: the session.
        folder: of the tables.
        seed: of the first scan.
        count: number of scans.
        make: writes the table of a seed.
    """
    report, table, df = Report(), None, None
    for scan_seed in range(seed, seed + count):
        if table is None or scan_seed % SCANS == 0:
            number = scan_seed // SCANS
            path = Path(folder, f"table-{number}")
            table = make(number, path, spark)
            try:
                df = table.read(spark)
            except Exception as error:  # noqa: BLE001 - Spark does not read such a type
                df = f"Spark cannot: {_short(error)}"
        if isinstance(df, str):
            report.left(df)
        else:
            _compare(spark, table, df, scan_seed, report)
        if scan_seed % SCANS == SCANS - 1 or scan_seed == seed + count - 1:
            shutil.rmtree(table.path)
    return report


def _compare(spark, table, df, seed, report):
    chosen = random.Random(f"scan {seed}")
    with confs_of(spark, {"spark.sql.session.timeZone": chosen.choice(ZONES)}):
        scan = _scan(chosen, df)
        try:
            source = source_of(scan)
        except (Unsure, UnsupportedTypeError) as why:
            report.left(str(why))
            return
        report.workers += 1
        expected, rows = _answer(scan.toArrow), _answer(lambda: by_workers(source))
        wanted = arrow_schema(scan.schema, spark.conf.get("spark.sql.session.timeZone"))
    if not isinstance(rows, str) and rows.schema.types != wanted.types:
        rows = f"types: {rows.schema}"
    refused = [words for words in REFUSED if isinstance(rows, str) and words in rows]
    if refused:
        report.left(f"refused by the workers: {refused[0]}")
        return
    difference = _difference(expected, rows)
    if difference:
        plan = scan._jdf.queryExecution().optimizedPlan()
        what = "\n".join(map(str, (table.schema, *table.written, plan)))
        report.differences.append(f"seed {seed}: {difference}\n{what}\n")


def by_workers(source):
    """Return the rows of a source as a table, read as a worker reads them."""
    with read(source) as batches:
        rows = list(batches)
    return pa.Table.from_batches(rows, source.schema)


def _answer(ask):
    """Return a table, or an error as text."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - the other one has to fail too
        return f"{type(error).__name__}: {_short(error)}"


def _difference(expected, rows):
    if isinstance(expected, str) or isinstance(rows, str):
        both = isinstance(expected, str) and isinstance(rows, str)
        return "" if both else f"Spark: {_head(expected)}; workers: {_head(rows)}"
    expected, rows = rows_of(expected), rows_of(rows)
    if expected == rows:
        return ""
    return f"only Spark: {list(expected - rows)[:3]}; only workers: {list(rows - expected)[:3]}"


def _head(answer):
    return answer if isinstance(answer, str) else f"{answer.num_rows} rows"


def rows_of(table):
    """Count the rows, as texts in which times are numbers, and NaN and -0.0 can be compared."""
    columns = [column.cast(_as_numbers(column.type)).to_pylist() for column in table.columns]
    return Counter(map(repr, zip(*columns, strict=True)))


def _as_numbers(kind):
    if pa.types.is_list(kind):
        return pa.list_(_as_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_numbers(field.type)) for field in kind])
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_string(kind):
        return pa.binary()
    return pa.int64() if pa.types.is_temporal(kind) else kind


def _scan(chosen, df):
    names = list(df.columns)
    columns = [quoted(name) for name in chosen.sample(names, chosen.randint(1, len(names)))]
    if chosen.random() < 0.3:
        columns = [quoted(name) for name in names]
    inner = [
        f"{quoted(column.name)}.{quoted(part.name)}"
        for column in df.schema
        if column.dataType.typeName() == "struct"
        for part in column.dataType
    ]
    if inner and chosen.random() < 0.3:
        columns.append(f"{chosen.choice(inner)} as inside")
    if chosen.random() < 0.1:
        columns.append(f"{columns[0]} as renamed")
    if chosen.random() < 0.4:
        df = df.where(_filter(chosen, df, chosen.choice([0, 0, 1, 2])))
    return df.selectExpr(*columns)


def _filter(chosen, df, depth):
    if depth:
        left, right = _filter(chosen, df, depth - 1), _filter(chosen, df, depth - 1)
        return chosen.choice([f"({left}) and ({right})", f"({left}) or ({right})", f"not ({left})"])
    column = chosen.choice(df.schema.fields)
    name, values = quoted(column.name), _literals(column.dataType)
    if not values or chosen.random() < 0.2:
        return f"{name} is {chosen.choice(['', 'not '])}null"
    first, second = chosen.choice(values), chosen.choice(values)
    forms = [f"{name} {sign} {first}" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
    forms += [f"{name} in ({first}, {second})", f"{name} between {first} and {second}"]
    if column.dataType.typeName() == "string":
        forms += [f"{name} like '{text}'" for text in ("a%", "%b", "%a%", "a_", "%")]
    return chosen.choice(forms)


def _literals(kind):
    """Return values of a flat type of Spark as SQL writes them."""
    by_name = {
        "boolean": (pa.bool_(), "{}"),
        "byte": (pa.int8(), "cast({} as tinyint)"),
        "short": (pa.int16(), "cast({} as smallint)"),
        "integer": (pa.int32(), "cast({}L as int)"),
        "long": (pa.int64(), "cast('{}' as bigint)"),
        "float": (pa.float32(), "float('{}')"),
        "double": (pa.float64(), "double('{}')"),
        "date": (pa.date32(), "date_from_unix_date({})"),
        "timestamp": (pa.timestamp("us", "UTC"), "timestamp_micros({})"),
    }
    if kind.typeName() == "string":
        return [f"'{text}'" for text in ("", "a", "ab", "Zürich", "\U0001f30a")]
    if kind.typeName() == "decimal":
        return [f"cast('{text}' as {kind.simpleString()})" for text in ("0", "-0.01", "1.5")]
    if kind.typeName() not in by_name:
        return []
    arrow, form = by_name[kind.typeName()]
    return [form.format(value) for value in FLAT[arrow]]


def _short(error):
    text = getattr(error, "getErrorClass", lambda: None)() or str(error).strip()
    return re.sub(r"\s+", " ", str(text))[:300]
