"""What functions of streams return: any kind of rows is taken, and what has none is refused by name."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.kit.stream_jobs import START

from headgate import errors
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource, WatermarkStrategy
from headgate.stream import CoProcessFunction, ProcessFunction, TumblingWindow, stream

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = 10
#: Ways to return the rows of a batch.
KINDS = {
    "a batch": lambda batch: batch,
    "a table": lambda batch: pa.Table.from_batches([batch]),
    "polars": pl.DataFrame,
    "pandas": lambda batch: batch.to_pandas(),
    "a reader": lambda batch: pa.RecordBatchReader.from_batches(batch.schema, [batch]),
    "a list": lambda batch: [pl.DataFrame(batch.slice(0, 1)), batch.slice(1).to_pandas()],
    "a generator": lambda batch: (batch.slice(at, 1) for at in range(batch.num_rows)),
    "other order": lambda batch: batch.select(["name", "id"]),
    "smaller integers": lambda batch: batch.set_column(0, "id", batch["id"].cast(pa.int16())),
}
#: What has no rows, and a part of the error.
NONE = {
    "None": (lambda batch: None, "returned None"),
    "a generator of None": (lambda batch: iter([None]), "None"),
    "a number": (lambda batch: 3, "returned an int"),
    "an array": (lambda batch: batch["id"], "returned an Int64Array"),
    "a dict": (lambda batch: batch.to_pydict(), "returned a dict"),
    "lists": (lambda batch: batch.to_pylist(), "returned a dict"),
    "a text": (lambda batch: "rows", "returned a str"),
    "a column less": (lambda batch: batch.select(["id"]), "no column 'name'"),
    "another type": (
        lambda batch: batch.set_column(0, "id", batch["name"]),
        "string in column 'id', which is declared int64",
    ),
}


def named(batch):
    """Return rows of the schema."""
    return batch.append_column("name", batch["id"].cast(pa.string()))


def rows(count=ROWS):
    return stream(NumberSequenceSource(0, count, splits=1)).map(named)


class Returns(ProcessFunction):
    """Returns what a function makes of a batch, and the same of its timers."""

    def __init__(self, make, of="process"):
        self.make, self.of = make, of

    def process(self, batch, context):
        if self.of == "process":
            return self.make(batch)
        context.event_timers.register(pa.array([0] * batch.num_rows))
        return []

    def on_event_timers(self, timers, context):
        return self.make(named(context.keys))


class Emits(ProcessFunction):
    def __init__(self, make):
        self.make = make

    def process(self, batch, context):
        context.emit(self.make(batch))
        context.emit(self.make(batch), "side")
        return []


class CoReturns(CoProcessFunction):
    def __init__(self, make):
        self.make = make

    def process_first(self, batch, context):
        return self.make(batch)

    def process_second(self, batch, context):
        return []


def by_map(make):
    return rows().map(make, schema=SCHEMA)


def by_process(make):
    return rows().process(Returns(make), schema=SCHEMA)


def by_timers(make):
    return rows().key_by("id").process(Returns(make, "timers"), schema=SCHEMA)


def by_emit(make):
    made = rows().process(Emits(make), schema=SCHEMA, side_outputs={"side": SCHEMA})
    return made.side_output("side")


def by_connect(make):
    second = rows().key_by("id")
    return rows().key_by("id").connect(second).process(CoReturns(make), schema=SCHEMA)


def by_window(make):
    def of_windows(windows):
        return make(flat(windows))

    at = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("id")
    source = NumberSequenceSource(START, START + ROWS, splits=1)
    keyed = stream(source, watermarks=at).map(named).key_by("name")
    return keyed.window(TumblingWindow("1 second"), time="id", function=of_windows)


def flat(windows):
    rows = pa.RecordBatch.from_struct_array(windows["rows"].flatten())
    return rows.cast(SCHEMA)


WAYS = [by_map, by_process, by_timers, by_emit, by_connect, by_window]


def run(made):
    found = []
    made.sink(FunctionSink(found.append)).run(restarts=0)
    return pa.Table.from_batches(found, found[0].schema).sort_by("id")


@pytest.mark.parametrize("way", WAYS)
def test_functions_return_rows_of_any_library(way):
    for kind, make in KINDS.items():
        if way is by_window and kind in {"pandas", "a list", "a generator", "smaller integers"}:
            continue  # its schema is that of no rows
        found = run(way(make)).to_pylist()
        first = START if way is by_window else 0
        assert {row["id"] for row in found} == set(range(first, first + ROWS)), kind
        assert all(row["name"] == str(row["id"]) for row in found), kind


@pytest.mark.parametrize("way", WAYS)
def test_what_has_no_rows_is_refused_by_name(way):
    for what, (make, words) in NONE.items():
        if way is by_window and what in {"a column less", "another type", "lists"}:
            continue  # its schema is what the function returns
        with pytest.raises(errors.SchemaMismatchError) as caught:
            run(way(make))
        assert words in str(caught.value), what
        assert caught.value.remedy, what


@pytest.mark.parametrize(
    "nothing", [list, lambda: pl.DataFrame(schema={"id": pl.Int64, "name": pl.String})]
)
def test_an_empty_batch_says_that_there_are_no_rows(nothing):
    for way in (by_map, by_process):
        found = []
        way(lambda batch: nothing()).sink(FunctionSink(found.append)).run()
        assert found == []


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "returned None"),
        ([1, 0], "a boolean for each row"),
        ("true", "a boolean for each row"),
        (pa.array([True]), "a boolean for each row"),
        ([None] * ROWS, "a boolean for each row"),
    ],
)
def test_a_filter_returns_a_boolean_for_each_row(made, words):
    with pytest.raises(errors.SchemaMismatchError, match=words):
        run(rows().filter(lambda batch: made))


@pytest.mark.parametrize(
    "make", [pl.Series, pd.Series, pa.array, list, lambda mask: pa.chunked_array([mask])]
)
def test_a_filter_takes_booleans_of_any_library(make):
    found = run(rows().filter(lambda batch: make([at % 2 == 0 for at in range(batch.num_rows)])))
    assert found["id"].to_pylist() == [0, 2, 4, 6, 8]


def test_timers_without_a_method_for_them_are_an_error():
    class Registers(ProcessFunction):
        def process(self, batch, context):
            context.event_timers.register(pa.array([0] * batch.num_rows))
            return []

    with pytest.raises(errors.UserFunctionError, match="on_event_timers of process-1"):
        run(rows().key_by("id").process(Registers, schema=SCHEMA))


def test_an_error_of_the_function_of_a_sink_is_the_users():
    def broken(batch):
        raise KeyError("planned")

    with pytest.raises(errors.UserFunctionError, match=r"the function of sink .*files.* KeyError"):
        rows().sink(FunctionSink(broken), name="files").run(restarts=0)


def test_an_error_of_a_sink_of_a_user_names_the_sink():
    class Broken(FunctionSink):
        def create_writer(self, context, schema=None):
            raise ZeroDivisionError("planned")

    with pytest.raises(errors.SinkError, match="create_writer of mine failed: ZeroDivision"):
        rows().sink(Broken(print), name="mine").run(restarts=0)


def test_map_without_a_schema_says_which_type_it_cannot_know():
    with pytest.raises(errors.UserFunctionError, match="column 'name' whose type it does not know"):
        rows().map(lambda batch: pa.table({"name": [None] * batch.num_rows}))
