"""Arguments and results of a user's function, without Spark."""

import polars as pl
import pyarrow as pa
import pytest

from headgate.batches import Batches
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply

pd = pytest.importorskip("pandas")
duckdb = pytest.importorskip("duckdb")

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])


def batch(*numbers):
    return pa.RecordBatch.from_pydict(
        {"user": [f"u{n}" for n in numbers], "n": list(numbers)}, schema=SCHEMA
    )


def source(*batches):
    return Source(iter(batches), SCHEMA, lambda _: None)


def call(function, *batches):
    """Return the rows that a reduce returns for these batches, cast as its task does."""
    made = DdlCast(SCHEMA, "reduce").all(apply("reduce", function, source(*batches)))
    return pa.Table.from_batches(made, SCHEMA)


LIBRARIES = {
    "pyarrow": lambda batches: pa.table(batches).num_rows,
    "reader": lambda batches: pa.RecordBatchReader.from_stream(batches).read_all().num_rows,
    "read_all": lambda batches: batches.read_all().num_rows,
    "polars": lambda batches: pl.DataFrame(batches).height,
    "duckdb": lambda batches: duckdb.from_arrow(batches).aggregate("count(*)").fetchall()[0][0],
    "pandas": lambda batches: len(batches.read_all().to_pandas()),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("batches", [(), (batch(),), (batch(1, 2), batch(3))], ids=len)
def test_libraries_read_the_batches_also_if_there_are_none(library, batches):
    expected = sum(one.num_rows for one in batches)
    assert LIBRARIES[library](source(*batches)) == expected


def test_a_library_reads_what_was_not_taken_yet():
    batches = source(batch(1), batch(2), batch(3))
    assert next(batches)["n"].to_pylist() == [1]
    assert pa.table(batches)["n"].to_pylist() == [2, 3]
    assert list(batches) == []


def test_the_schema_is_that_of_the_first_batch_and_takes_no_row():
    given = SCHEMA.with_metadata({"of": "the first"})
    batches = source(batch(1).cast(given), batch(2).cast(given))
    assert batches.schema.metadata == {b"of": b"the first"}
    assert [one["n"].to_pylist() for one in batches] == [[1], [2]]
    assert source().schema == SCHEMA


def test_the_schema_of_a_source_that_has_begun_is_known():
    batches = source(batch(1))
    next(batches)
    assert batches.schema == SCHEMA
    assert list(batches) == []


def filtered(batches):
    frame = batches.read_all().to_pandas()
    return frame[frame["n"] > 0].sort_values("n", ascending=False)


RETURNED = {
    "the batches themselves": lambda batches: batches,
    "a list of batches": list,
    "a tuple": tuple,
    "a table": lambda batches: batches.read_all(),
    "a reader": lambda batches: pa.RecordBatchReader.from_batches(batches.schema, batches),
    "a batch": lambda batches: batches.read_all().combine_chunks().to_batches()[0],
    "a DataFrame of polars": pl.DataFrame,
    "a Series of structs of polars": pl.Series,
    "a DataFrame of pandas": lambda batches: batches.read_all().to_pandas(),
    "a filtered DataFrame of pandas": filtered,
    "a grouped DataFrame of pandas": lambda batches: (
        batches.read_all().to_pandas().groupby("user").agg(n=("n", "sum"))
    ),
    "tables, one for each batch": lambda batches: (pa.table(one) for one in batches),
    "frames of polars": lambda batches: map(pl.from_arrow, batches),
    "frames of pandas": lambda batches: [one.to_pandas() for one in batches],
    "all kinds": lambda batches: iter(
        [next(batches), pl.from_arrow(next(batches)), next(batches).to_pandas()]
    ),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_a_function_may_return_anything_that_has_rows(kind):
    rows = call(RETURNED[kind], batch(1, 2), batch(3), batch(4))
    assert rows.sort_by("n").equals(pa.table(call(None, batch(1, 2, 3, 4))))


@pytest.mark.parametrize(
    "kind", [k for k in RETURNED if k not in {"a batch", "all kinds"} and "pandas" not in k]
)
def test_no_rows_are_returned_for_none(kind):
    assert call(RETURNED[kind]).num_rows == 0


def test_an_iterator_of_batches_is_true_and_has_no_length():
    assert source()
    with pytest.raises(TypeError):
        len(source())


@pytest.mark.parametrize("read", LIBRARIES)
def test_the_error_of_the_origin_is_not_the_functions_own(read):
    def failing():
        yield batch(1)
        raise OSError("the disk")

    broken = Source(failing(), SCHEMA, lambda _: None)
    with pytest.raises(OSError, match="the disk"):
        list(apply("reduce", lambda batches: [LIBRARIES[read](batches)], broken))


def test_an_error_within_a_returned_reader_is_the_functions_own():
    def late(batches):
        def rows():
            yield next(batches)
            raise ValueError("late")

        return pa.RecordBatchReader.from_batches(SCHEMA, rows())

    with pytest.raises(UserFunctionFailed) as caught:
        call(late, batch(1))
    assert "late" in str(caught.value.error)


def test_a_generator_is_closed_when_no_further_batch_is_asked_for():
    closed = []

    def endless(batches):
        try:
            while True:
                yield batch(1)
        finally:
            closed.append(True)

    made = apply("reduce", endless, source())
    next(made)
    made.close()
    assert closed == [True]


def test_batches_of_ones_own():
    made = Batches([batch(1), batch(2)], SCHEMA)
    assert pa.table(made)["n"].to_pylist() == [1, 2]


def test_an_attribute_error_of_the_origin_is_not_hidden():
    def failing():
        yield None.missing

    for read in (lambda b: b.read_all(), pa.table):
        with pytest.raises(AttributeError, match="missing"):
            read(Batches(failing(), SCHEMA))
    with pytest.raises(RuntimeError, match="missing"):
        _ = Batches(failing(), SCHEMA).schema


def test_an_index_of_pandas_with_a_name_is_a_column():
    frame = pd.DataFrame({"user": ["a", "b"]}, index=pd.RangeIndex(2, name="n"))
    assert call(lambda _: frame).to_pylist() == [{"user": "a", "n": 0}, {"user": "b", "n": 1}]


def test_an_error_at_the_end_of_a_generator_that_is_given_up_is_raised():
    def endless(batches):
        try:
            while True:
                yield batch(1)
        finally:
            raise ValueError("at the end")

    made = apply("reduce", endless, source())
    next(made)
    with pytest.raises(UserFunctionFailed):
        made.close()
