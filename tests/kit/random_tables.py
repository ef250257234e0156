"""Random folders of Parquet files, as several writers write them: a seed is a folder."""

import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

NAN, INFINITE = float("nan"), float("inf")
DAY, SECOND = 86_400, 1_000_000
#: Days since 1970: the first and the last ones, those around the change of the calendar, around epochs.
DAYS = [
    -719_162,
    -718_000,
    -141_428,
    -141_427,
    -141_426,
    -25_568,
    -25_567,
    -1,
    0,
    1,
    19_782,
    2_932_896,
]
#: Microseconds since 1970: around those days, around changes of zones, and far away.
TIMES = [
    *(day * DAY * SECOND + off for day in DAYS for off in (-1, 0, 1)),
    *(
        second * SECOND
        for second in (-5_364_662_400, 1_774_745_999, 1_774_746_000, 1_792_890_000, 1_773_050_400)
    ),
    *(-1_500, -1_499_999, 1_499_999, 253_402_300_799_999_999),
    *(-(2**63) + 1, 2**63 - 1),
]
TEXTS = ["", "a", "ab", "B", "NaN", "Zürich", "\U0001f30a", "x" * 300, "a\0b", "%", " "]
#: Type -> values.
FLAT = {
    pa.bool_(): [True, False],
    pa.int8(): [0, 1, -128, 127],
    pa.int16(): [0, -1, -(2**15), 2**15 - 1],
    pa.int32(): [0, -1, 7, -(2**31), 2**31 - 1],
    pa.int64(): [0, -1, 7, 2**53 + 1, -(2**63), 2**63 - 1],
    pa.float32(): [0.0, -0.0, 1.5, NAN, INFINITE, -INFINITE, 1e-45],
    pa.float64(): [0.0, -0.0, 1.5, NAN, INFINITE, -INFINITE, 5e-324, 1.7e308],
    pa.decimal128(4, 2): [Decimal(0), Decimal("99.99"), Decimal("-0.01")],
    pa.decimal128(18, 6): [Decimal(0), Decimal("-0.000001"), Decimal("999999999999.999999")],
    pa.decimal128(38, 10): [
        Decimal(0),
        Decimal("-0.0000000001"),
        Decimal("9999999999999999999999999999.9999999999"),
    ],
    pa.string(): TEXTS,
    pa.binary(): [b"", b"a", b"\0\xff", b"x" * 300],
    pa.date32(): DAYS,
    pa.timestamp("us", "UTC"): TIMES,
    pa.timestamp("us"): TIMES,
}
#: Types that a column has in files instead, or that Spark may not read.
ODD = {
    pa.int32(): [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
    pa.int64(): [pa.int32(), pa.uint64(), pa.uint32(), pa.duration("us")],
    pa.float32(): [pa.float64(), pa.float16()],
    pa.float64(): [pa.float32()],
    pa.decimal128(4, 2): [pa.decimal128(10, 2), pa.decimal128(5, 3), pa.decimal128(4, 1)],
    pa.decimal128(18, 6): [pa.decimal128(20, 6)],
    pa.string(): [
        pa.large_string(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(),
        pa.string_view(),
    ],
    pa.binary(): [pa.large_binary(), pa.string(), pa.binary(4), pa.binary_view()],
    pa.date32(): [pa.timestamp("us"), pa.date64(), pa.int32()],
    pa.timestamp("us", "UTC"): [
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "Asia/Tokyo"),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us"),
        pa.timestamp("s", "UTC"),
    ],
    pa.timestamp("us"): [
        pa.timestamp("ms"),
        pa.timestamp("ns"),
        pa.timestamp("us", "UTC"),
        pa.time64("us"),
    ],
}
NAMES = ["a", "b", "c", "Big", "d e", "ü", "x.y", "key", "element", "list", "_under", "id2"]
#: Column of a folder -> its values, as the names of folders have them.
FOLDERS = {
    "pi": ["1", "2", "-7"],
    "pt": ["a", "b c", "ü/x=%", "__HIVE_DEFAULT_PARTITION__"],
    "pd": ["2024-01-01", "2024-02-29"],
    "pz": ["007", "1"],
}
ZONES = ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Europe/Amsterdam"]
#: Marks that Spark leaves in files, of which it makes other days and times of the old calendar.
MARKS = [
    {},
    {},
    {"org.apache.spark.version": "4.1.0"},
    {"org.apache.spark.version": "2.4.5"},
    {"org.apache.spark.version": "3.0.1"},
    {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""},
    {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyINT96": ""},
    {
        "org.apache.spark.version": "3.5.1",
        "org.apache.spark.legacyINT96": "",
        "org.apache.spark.timeZone": "Europe/Amsterdam",
    },
]


@dataclass
class RandomTable:
    """A folder of Parquet files.

    Attributes:
        path: the folder.
        schema: columns that a reader may ask for.
        partitions: names of the columns of folders.
        declares: True if a reader gives the schema, rather than Spark finding it in the files.
        merges: True if Spark merges the schemas of all files.
        written: one text for each file, about its writer.
    """

    path: Path
    schema: pa.Schema
    partitions: list[str]
    declares: bool
    merges: bool
    written: list[str] = field(default_factory=list)

    def read(self, spark):
        """Return a DataFrame of all files."""
        reader = spark.read.option("mergeSchema", "true") if self.merges else spark.read
        if self.declares:
            types = [
                f"{quoted(schema_field.name)} {ddl(schema_field.type)}"
                for schema_field in self.schema
            ]
            reader = reader.schema(", ".join(types))
        return reader.parquet(str(self.path))


def quoted(name):
    """Return a name as SQL writes it."""
    return f"`{name}`"


def ddl(kind):
    """Return a type as SQL writes it."""
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(schema_field.name)}: {ddl(schema_field.type)}' for schema_field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    names = {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
        pa.timestamp("us", "UTC"): "timestamp",
        pa.timestamp("us"): "timestamp_ntz",
    }
    return names[kind]


def random_table(seed, path, spark, oddness=None):
    """Write the folder of a seed, and return it.

    Args:
        seed: of the folder.
        path: of the folder.
        spark: session that writes some of the files.
        oddness: share of the columns with another type in a file; None for a random share.
    """
    chosen = random.Random(f"table {seed}")
    columns = chosen.sample(NAMES, chosen.randint(1, 6))
    schema = pa.schema([("id", pa.int64()), *((name, _type(chosen, 0)) for name in columns)])
    partitions = chosen.sample(sorted(FOLDERS), chosen.choice([0, 0, 0, 0, 0, 1, 2]))
    evolves = chosen.random() < 0.35
    declares = chosen.random() < 0.5 and not partitions
    out = RandomTable(Path(path), schema, partitions, declares, evolves and chosen.random() < 0.3)
    out.path.mkdir(parents=True)
    odd = chosen.choice([0.0, 0.0, 0.0, 0.15])
    oddness = odd if oddness is None else oddness
    writer = chosen.choice(WRITERS)
    for number in range(chosen.randint(1, 3)):
        if chosen.random() < 0.2:
            writer = chosen.choice(WRITERS)
        file_schema = _evolved(chosen, schema) if evolves else schema
        rows = random_rows(chosen, file_schema, oddness)
        folder = out.path
        for name in partitions:
            value = chosen.choice(FOLDERS[name])
            folder /= f"{name}={quote(value, safe=' ')}"
        folder.mkdir(parents=True, exist_ok=True)
        out.written.append(writer(chosen, rows, folder / f"part-{number}.parquet", spark))
    return out


def _type(chosen, depth):
    kind = chosen.random()
    if depth >= 2 or kind < 0.7:
        return chosen.choice(list(FLAT))
    if kind < 0.8:
        return pa.list_(pa.field("element", _type(chosen, depth + 1)))
    if kind < 0.93:
        names = chosen.sample(["a", "B", "c d", "element"], chosen.randint(1, 3))
        return pa.struct([(name, _type(chosen, depth + 1)) for name in names])
    key = chosen.choice([pa.string(), pa.int32(), pa.date32()])
    return pa.map_(key, _type(chosen, depth + 1))


def _evolved(chosen, schema):
    """Return a schema as an earlier or later version of a table has it."""
    fields = [
        _evolved_field(chosen, schema_field)
        for schema_field in schema
        if schema_field.name == "id" or chosen.random() > 0.2
    ]
    if chosen.random() < 0.3:
        fields.append(pa.field("more", pa.string()))
    if chosen.random() < 0.4:
        chosen.shuffle(fields)
    return pa.schema(fields)


def _evolved_field(chosen, schema_field):
    if pa.types.is_struct(schema_field.type):
        inner = [
            _evolved_field(chosen, part) for part in schema_field.type if chosen.random() > 0.2
        ]
        if chosen.random() < 0.3 or not inner:
            inner.append(pa.field("also", pa.int32()))
        if chosen.random() < 0.3:
            chosen.shuffle(inner)
        return schema_field.with_type(pa.struct(inner))
    if pa.types.is_list(schema_field.type):
        return schema_field.with_type(
            pa.list_(_evolved_field(chosen, schema_field.type.value_field))
        )
    if schema_field.name == "Big" and chosen.random() < 0.2:
        return schema_field.with_name("big")
    return schema_field


def random_rows(chosen, schema, oddness):
    """Return a table of up to 60 rows; some columns have another type, by the share ``oddness``."""
    count = chosen.choice([0, 1, 3, 20, 20, 60])
    columns, names = [], []
    for schema_field in schema:
        missing = chosen.choice([0.0, 0.2, 0.2, 1.0 if chosen.random() < 0.1 else 0.3])
        recent = chosen.random() < 0.5
        values = [_value(chosen, schema_field.type, missing, recent) for _ in range(count)]
        column = pa.array(values, schema_field.type)
        if chosen.random() < oddness:
            column = _odd(chosen, column)
        columns.append(column)
        names.append(schema_field.name)
    return pa.table(columns, names=names)


def _value(chosen, kind, missing, recent, *, needed=False):
    if not needed and chosen.random() < missing:
        return None
    if pa.types.is_list(kind):
        return [
            _value(chosen, kind.value_type, missing, recent)
            for _ in range(chosen.choice([0, 1, 3]))
        ]
    if pa.types.is_map(kind):
        keys = [
            _value(chosen, kind.key_type, 0, recent, needed=True)
            for _ in range(chosen.choice([0, 1, 2]))
        ]
        return [
            (key, _value(chosen, kind.item_type, missing, recent)) for key in dict.fromkeys(keys)
        ]
    if pa.types.is_struct(kind):
        return {
            schema_field.name: _value(chosen, schema_field.type, missing, recent)
            for schema_field in kind
        }
    values = FLAT[kind]
    if recent and pa.types.is_temporal(kind):
        # Other files than those of Spark are not read by workers if they may have old times.
        values = [value for value in values if -1_000 < value < 20_000 or 10**9 < value < 10**16]
    return chosen.choice(values)


def _odd(chosen, column):
    """Return the column with another type, if it has its values."""
    try:
        return column.cast(chosen.choice(ODD.get(column.type, [column.type])))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _by_pyarrow(chosen, rows, path, _):
    options = {
        "version": chosen.choice(["1.0", "2.4", "2.6"]),
        "data_page_version": chosen.choice(["1.0", "2.0"]),
        "use_dictionary": chosen.random() < 0.5,
        "compression": chosen.choice(["none", "snappy", "zstd", "gzip"]),
        "row_group_size": chosen.choice([7, 1000]),
        "data_page_size": chosen.choice([64, 2**20]),
        "write_statistics": chosen.random() < 0.8,
        "use_compliant_nested_type": chosen.random() < 0.8,
        "store_schema": chosen.random() < 0.8,
        "write_page_index": chosen.random() < 0.2,
        "store_decimal_as_integer": chosen.random() < 0.5,
        "use_deprecated_int96_timestamps": chosen.random() < 0.3,
        "coerce_timestamps": chosen.choice([None, None, None, "ms"]),
        "allow_truncated_timestamps": True,
    }
    marks = chosen.choice(MARKS)
    if chosen.random() < 0.1:
        rows = _with_wrong_texts(rows)
    pq.write_table(rows.replace_schema_metadata(marks or None), path, **options)
    return f"pyarrow {options} {marks}"


def _with_wrong_texts(rows):
    """Return the rows with a text that is not UTF-8 in each column of texts; no reader of Parquet looks at that."""
    for place, schema_field in enumerate(rows.schema):
        if schema_field.type == pa.string():
            texts = rows[schema_field.name].combine_chunks().to_pylist()
            raw = [b"\xffa" if text == "a" else text and text.encode() for text in texts]
            wrong = pa.array(raw, pa.binary()).view(pa.string())
            rows = rows.set_column(place, schema_field, wrong)
    return rows


def _by_polars(chosen, rows, path, _):
    import polars as pl

    options = {
        "compression": chosen.choice(["uncompressed", "snappy", "zstd"]),
        "row_group_size": chosen.choice([None, 8]),
        "statistics": chosen.random() < 0.8,
    }
    try:
        pl.from_arrow(rows).write_parquet(path, **options)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{_by_pyarrow(chosen, rows, path, _)}, not polars: {type(error).__name__}"
    return f"polars {options}"


def _by_duckdb(chosen, rows, path, _):
    import duckdb

    options = f"format parquet, parquet_version v{chosen.choice([1, 2])}, row_group_size 2048"
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    try:
        connection.register("rows_here", rows)
        connection.execute(
            f"copy rows_here to '{str(path).replace(chr(39), chr(39) * 2)}' ({options})"
        )
    except duckdb.Error as error:
        return f"{_by_pyarrow(chosen, rows, path, _)}, not DuckDB: {error}"
    finally:
        connection.close()
    return f"duckdb {options}"


def _by_spark(chosen, rows, path, spark):
    confs = {
        "spark.sql.parquet.outputTimestampType": chosen.choice(
            ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"]
        ),
        "spark.sql.parquet.writeLegacyFormat": chosen.choice(["true", "false", "false"]),
        "spark.sql.parquet.int96RebaseModeInWrite": chosen.choice(["CORRECTED", "LEGACY"]),
        "spark.sql.parquet.datetimeRebaseModeInWrite": chosen.choice(["CORRECTED", "LEGACY"]),
        "spark.sql.session.timeZone": chosen.choice(ZONES),
    }
    options = {
        "compression": chosen.choice(["none", "snappy", "zstd"]),
        "parquet.writer.version": chosen.choice(["PARQUET_1_0", "PARQUET_2_0"]),
        "parquet.enable.dictionary": chosen.choice(["true", "false"]),
    }
    folder = path.with_name(f"_{path.stem}")
    try:
        with confs_of(spark, confs):
            df = spark.createDataFrame(rows)
            df.coalesce(1).write.options(**options).parquet(str(folder))
    except Exception as error:  # noqa: BLE001 - Spark has no such type
        return f"{_by_pyarrow(chosen, rows, path, spark)}, not Spark: {type(error).__name__}"
    (part,) = folder.glob("*.parquet")
    part.rename(path)
    return f"Spark {confs} {options}"


class confs_of:  # noqa: N801 - used as a function
    """Confs of a session within a block."""

    def __init__(self, spark, confs):
        self._spark, self._confs = spark, confs

    def __enter__(self):
        self._before = {name: self._spark.conf.get(name, None) for name in self._confs}
        for name, value in self._confs.items():
            self._spark.conf.set(name, value)

    def __exit__(self, *_):
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


WRITERS = [_by_spark, _by_spark, _by_pyarrow, _by_pyarrow, _by_polars, _by_duckdb]
