"""Columns and filters that workers compute: random expressions over random values give Spark's own values."""

import datetime as dt
import pickle
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import SchemaMismatchError
from headgate.source import read
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure

NAN, INF = float("nan"), float("inf")
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001 - a zone is added where there is one
AT = NOON.replace(tzinfo=dt.UTC)
#: Column -> its type and its values.
COLUMNS = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [0, 7, -128, 127]),
    "i16": (pa.int16(), [0, -9, -(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [0, 7, -8, -(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [0, 13, -14, -(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, 0.1, INF, NAN, 3e38, 1e-45]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, 0.1, 1e308, 5e-324, -INF, NAN]),
    "price": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("9999999999.99"), Decimal("-1.05")]),
    "rate": (pa.decimal128(4, 3), [Decimal("0.055"), Decimal("-9.999"), Decimal("1.500")]),
    "text": (
        pa.string(),
        ["", " a b ", "ab", "a%b_c", "Zürich", "\U0001f30a wave", "\ta\n", "a\nb"],
    ),
    "day": (pa.date32(), [dt.date(1582, 10, 15), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [AT, AT.replace(year=1904), AT.replace(month=10, day=27)]),
    "local": (pa.timestamp("us"), [NOON, NOON.replace(year=1904)]),
}
ROWS = 90
#: Type in SQL -> literals of it.
LITERALS = {
    "boolean": ["true", "false", "cast(null as boolean)"],
    "tinyint": ["7Y", "-128Y"],
    "int": ["7", "-8", "2147483647", "cast(null as int)"],
    "bigint": ["13L", "-14L", "9223372036854775807L"],
    "float": ["float('1.5')", "float('NaN')", "float('0.1')", "float('-0.0')"],
    "double": ["1.5D", "double('NaN')", "0.1D", "(-0.0D)", "cast(null as double)"],
    "decimal(12,2)": ["cast(1.05 as decimal(12,2))", "cast(-1.05 as decimal(12,2))"],
    "string": ["'ab'", "''", "'Zürich'", "cast(null as string)"],
    "date": ["date'1970-01-01'", "date'1582-10-16'", "date'0001-01-01'"],
    "timestamp": ["timestamp'2024-02-29 12:00:00.000001Z'", "timestamp'1905-02-28 23:00:00'"],
    "timestamp_ntz": ["timestamp_ntz'2024-02-29 12:00:00.000001'"],
}
NAMES = {
    "boolean": ["flag"],
    "tinyint": ["i8"],
    "int": ["i32"],
    "bigint": ["i64"],
    "float": ["f32"],
    "double": ["f64"],
    "decimal(12,2)": ["price"],
    "string": ["text"],
    "date": ["day"],
    "timestamp": ["at"],
    "timestamp_ntz": ["local"],
}
PATTERNS = ["a%", "%b", "%a%", "a%b", "%a%b%", "_b", "a_%", "%", "", "Z_rich", "_ wave", "a_b"]


def make(chosen, kind, depth):
    """Return an expression of a type in SQL that never fails."""
    if depth == 0 or (kind != "boolean" and chosen.random() < 0.2):
        names = NAMES[kind]
        return chosen.choice(LITERALS[kind] if chosen.random() < 0.25 else names)
    choices = [
        lambda: (
            f"if({make(chosen, 'boolean', depth - 1)}, {make(chosen, kind, depth - 1)}, {make(chosen, kind, depth - 1)})"
        ),
        lambda: f"coalesce({make(chosen, kind, depth - 1)}, {make(chosen, kind, depth - 1)})",
        lambda: (
            f"case when {make(chosen, 'boolean', depth - 1)} then {make(chosen, kind, depth - 1)} "
            f"when {make(chosen, 'boolean', depth - 1)} then {make(chosen, kind, depth - 1)} end"
        ),
    ]
    choices += OF.get(kind, lambda *_: [])(chosen, depth - 1) * 2
    return chosen.choice(choices)()


def _booleans(chosen, depth):
    kind = chosen.choice(list(LITERALS))
    signs = ["=", "<=>", "<", "<=", ">", ">=", "<>"]

    def listed():
        values = ", ".join(chosen.choice(LITERALS[kind]) for _ in range(chosen.choice([1, 3, 14])))
        return f"({make(chosen, kind, depth)} in ({values}))"

    return [
        lambda: f"({make(chosen, kind, depth)} {chosen.choice(signs)} {make(chosen, kind, depth)})",
        lambda: f"({make(chosen, kind, depth)} {chosen.choice(signs)} {make(chosen, kind, depth)})",
        lambda: (
            f"({make(chosen, kind, depth)} between {make(chosen, kind, 0)} and {make(chosen, kind, 0)})"
        ),
        lambda: f"({make(chosen, 'boolean', depth)} and {make(chosen, 'boolean', depth)})",
        lambda: f"({make(chosen, 'boolean', depth)} or {make(chosen, 'boolean', depth)})",
        lambda: f"(not {make(chosen, 'boolean', depth)})",
        lambda: f"({make(chosen, kind, depth)} is {chosen.choice(['', 'not '])}null)",
        lambda: f"isnan({make(chosen, 'double', depth)})",
        lambda: f"({make(chosen, 'string', depth)} like '{chosen.choice(PATTERNS)}')",
        lambda: f"startswith({make(chosen, 'string', depth)}, 'a')",
        listed,
    ]


def _ints(chosen, depth):
    return [
        lambda: f"(i16 {chosen.choice('+-')} cast(i8 as int) * {chosen.choice(['3', 'i16'])})",
        lambda: f"({make(chosen, 'int', depth)} % {chosen.choice([1, 7, 100])})",
        lambda: f"pmod({make(chosen, 'int', depth)}, {chosen.choice([1, 7, 100])})",
        lambda: f"length({make(chosen, 'string', depth)})",
        lambda: f"cast({make(chosen, 'boolean', depth)} as int)",
        lambda: f"cast({make(chosen, 'tinyint', depth)} as int)",
        lambda: "abs(i16 + 0)",
    ]


def _longs(chosen, depth):
    return [
        lambda: (
            f"(cast({make(chosen, 'int', depth)} as bigint) {chosen.choice('+-*')} {chosen.choice(['i32', '1000L'])})"
        ),
        lambda: f"({make(chosen, 'bigint', depth)} % 1000L)",
        lambda: f"({make(chosen, 'bigint', depth)} div 7)",
        lambda: f"cast({make(chosen, 'int', depth)} as bigint)",
        lambda: f"-cast({make(chosen, 'int', depth)} as bigint)",
    ]


def _doubles(chosen, depth):
    return [
        lambda: (
            f"({make(chosen, 'double', depth)} {chosen.choice('+-*')} {make(chosen, 'double', depth)})"
        ),
        lambda: f"({make(chosen, 'double', depth)} / 3.0D)",
        lambda: f"cast({make(chosen, chosen.choice(['int', 'bigint', 'float']), depth)} as double)",
        lambda: f"(-{make(chosen, 'double', depth)})",
    ]


def _floats(chosen, depth):
    return [
        lambda: f"cast({make(chosen, chosen.choice(['int', 'bigint', 'double']), depth)} as float)",
        lambda: (
            f"({make(chosen, 'float', depth)} {chosen.choice('+-*')} {make(chosen, 'float', depth)})"
        ),
    ]


def _texts(chosen, depth):
    return [
        lambda: f"concat({make(chosen, 'string', depth)}, {make(chosen, 'string', depth)})",
        lambda: f"{chosen.choice(['trim', 'ltrim', 'rtrim'])}({make(chosen, 'string', depth)})",
        lambda: (
            f"substring({make(chosen, 'string', depth)}, {chosen.choice([1, 2, 5])}, {chosen.choice([1, 3])})"
        ),
        lambda: (
            f"cast({make(chosen, chosen.choice(['int', 'bigint', 'boolean']), depth)} as string)"
        ),
    ]


OF = {
    "boolean": _booleans,
    "int": _ints,
    "bigint": _longs,
    "double": _doubles,
    "float": _floats,
    "string": _texts,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("expressions")
    chosen = random.Random(1)
    columns = {
        name: pa.array([chosen.choice([*values, None]) for _ in range(ROWS)], kind)
        for name, (kind, values) in COLUMNS.items()
    }
    columns["st"] = pa.array(
        [chosen.choice([None, {"a": None, "b": "x"}, {"a": 1, "b": "y"}]) for _ in range(ROWS)],
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
    )
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), **columns})
    pq.write_table(table.slice(0, 60), path / "0.parquet", row_group_size=11)
    pq.write_table(table.slice(60), path / "1.parquet")
    return str(path)


def by_workers(df):
    """Return the rows that the source of a DataFrame gives, as text in which NaN and -0.0 are seen."""
    with read(pickle.loads(pickle.dumps(source_of(df)))) as batches:
        table = batches.to_reader().read_all()
    assert table.schema.names == df.columns
    return texts(table)


def by_spark(df):
    """Return the rows that Spark gives to Python, as text."""
    return texts(df.toArrow())


def texts(table):
    """Return rows as texts, with times in UTC."""
    utc = pa.timestamp("us", "UTC")
    columns = [
        column.cast(utc) if getattr(column.type, "tz", None) else column for column in table.columns
    ]
    return sorted(map(repr, zip(*(column.to_pylist() for column in columns), strict=True)))


def alike(df):
    assert by_workers(df) == by_spark(df)


def compare(spark, folder, seed, count):
    """Compare random columns and filters; return how many were read by workers, and why others were not."""
    chosen = random.Random(seed)
    df, done, left = spark.read.parquet(folder), 0, {}
    for _ in range(count):
        kinds = [chosen.choice([*LITERALS, *OF]) for _ in range(2)]
        columns = [f"{make(chosen, kind, 2)} as c{n}" for n, kind in enumerate(kinds)]
        condition = make(chosen, "boolean", chosen.randint(1, 3))
        scan = df.where(condition).selectExpr("id", *columns)
        try:
            source_of(scan)
        except Unsure as why:
            left[str(why)] = left.get(str(why), 0) + 1
            continue
        done += 1
        assert by_workers(scan) == by_spark(scan), (columns, condition)
    return done, left


@pytest.fixture(params=["UTC", "America/Los_Angeles"])
def zone(spark, request):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_random_columns_and_filters_are_those_of_spark(spark, folder, zone):
    done, left = compare(spark, folder, seed=zone, count=15)
    assert done >= 5, left


@pytest.mark.soak
def test_many_random_columns_and_filters_are_those_of_spark(spark, folder):
    done, left = compare(spark, folder, seed=5, count=400)
    assert done > 150, left


#: Expressions that workers compute.
SAME = [
    "i32",
    "cast(i8 as int)",
    "cast(i32 as bigint) + 1",
    "cast(i64 as double)",
    "cast(i64 as float)",
    "cast(i32 as decimal(12,2))",
    "cast(price as decimal(20,4))",
    "cast(i64 as string)",
    "cast(flag as string)",
    "i64 % 7",
    "pmod(i64, 7L)",
    "i64 div 7",
    "price + rate",
    "price * (1 - rate)",
    "-price",
    "f64 * 2",
    "f64 / 3",
    "f32 + f32",
    "cast(f64 as float)",
    "coalesce(text, 'none')",
    "concat(text, '-', cast(id as string))",
    "trim(text)",
    "length(text)",
    "substring(text, 2, 3)",
    "if(i32 > 0, 'yes', null)",
    "case flag when true then 1 when false then 2 end",
    "text like 'a%b%c'",
    "day between date'1582-10-04' and date'1970-01-01'",
    "at > timestamp'2000-01-01 00:00:00'",
    "f64 <=> double('NaN')",
    "f64 >= f32",
    "price in (1.05, -1.05, null)",
    "1.50",
    "cast(null as date)",
    "day",
]


@pytest.mark.parametrize("first", range(0, len(SAME), 12))
def test_columns_that_workers_compute(spark, folder, first):
    expressions = SAME[first : first + 12]
    columns = [f"{text} as c{n}" for n, text in enumerate(expressions)]
    alike(spark.read.parquet(folder).selectExpr("id", *columns))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i64 + 1", "Add of int64, and the result may be too large"),
        ("i32 * 2", "Multiply of int32, and the result may be too large"),
        ("-i64", "UnaryMinus of int64, and the result may be too large"),
        ("i64 % i32", "Remainder of int64"),
        ("f64 / f64", "Divide of double"),
        ("price / 3", "Divide of decimal"),
        ("cast(price as double)", "Cast of decimal"),
        ("cast(f64 as int)", "Cast of double"),
        ("cast(text as int)", "Cast of string"),
        ("cast(day as string)", "Cast of date32"),
        ("upper(text)", "has Upper"),
        ("year(day)", "has Year"),
        ("rand()", "has Rand"),
        ("text like 'a!%b' escape '!'", "Like of string"),
        ("monotonically_increasing_id()", "has MonotonicallyIncreasingID"),
        ("input_file_name()", "has InputFileName"),
        ("hash(id)", "has Murmur3Hash"),
        ("abs(f64)", "Abs of double"),
        ("null", "a literal of type void"),
    ],
)
def test_columns_that_are_left_to_spark(spark, folder, text, why):
    df = spark.read.parquet(folder).selectExpr("id", f"{text} as it")
    with pytest.raises(Unsure, match=f"its column 'it' {why}|its column 'it' has {why}") as caught:
        source_of(df)
    assert caught.value.remedy == "compute it in map"


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("f64 = 0", "compares 'f64' with NaN or 0.0"),
        ("f32 >= -0.0", "compares 'f32' with NaN or 0.0"),
        (
            "at < timestamp_micros(-9223372036854775808)",
            "has a time outside of the years 1 to 9999",
        ),
        ("day in (date'1582-10-14', date'1970-01-01')", "has a time that Spark's reader may take"),
        ("at >= timestamp'1582-10-10 12:00:00Z'", "has a time that Spark's reader may take"),
        ("f64 in (1.5D, double('NaN'))", "compares 'f64' with NaN or 0.0"),
        ("f64 > 1", "its filter on 'f64' is true for NaN.* a file by parquet-cpp-arrow"),
        ("f64 <> 1.5", "its filter on 'f64' is true for NaN"),
        ("not (f32 in (1.5, 0.25))", "its filter on 'f32' is true for NaN"),
    ],
)
def test_filters_by_which_spark_may_lose_rows(spark, folder, condition, why):
    with pytest.raises(Unsure, match=why):
        source_of(spark.read.parquet(folder).where(condition).select("id"))


def test_filters_on_floats_by_which_spark_loses_none(spark, folder, tmp_path):
    df = spark.read.parquet(folder).select("id", "f32", "f64")
    for condition in ("f64 < 0", "f64 <= 1.5", "f32 = 1.5", "f64 in (1.5D, 1e308D)", "isnan(f64)"):
        alike(df.where(condition))
    df.write.parquet(str(tmp_path / "t"))
    mine = spark.read.parquet(str(tmp_path / "t"))
    for condition in ("f64 > 1", "f64 > 0", "f32 >= 1.5", "f64 <> 1.5", "not (f32 in (1.5, 0.25))"):
        alike(mine.where(condition))


def test_far_times_of_96_bits_are_an_error_and_not_other_times(spark, tmp_path):
    day = 86_400_000_000  # a year begins and ends within a day of UTC's
    first, last = -62_135_596_800_000_000 - day, 253_402_300_799_999_999 + day
    for number in (first, last, first - 1, last + 1, -5 * 10**18, 2**63 - 1):
        path = str(tmp_path / str(number))
        spark.range(1).selectExpr(f"timestamp_micros({number}L) as t").write.parquet(path)
        source = source_of(spark.read.parquet(path))
        if first <= number <= last:
            (batch,) = read(source)
            assert batch["t"].cast(pa.int64()).to_pylist() == [number]
        else:
            with pytest.raises(SchemaMismatchError, match="outside of the years 1 to 9999"):
                list(read(source))


def test_columns_with_the_same_name_are_told_apart(spark, folder):
    df = spark.read.parquet(folder)
    swapped = df.selectExpr("id", "i32 as i8", "i8 as i32", "text").where("i8 > 0 and text <> ''")
    alike(swapped.selectExpr("i8 + 0L as text", "id", "i32"))
    with pytest.raises(Unsure, match="two columns 'id'"):
        source_of(df.select("id", df.i32.alias("id")))
