"""Writers accept any object with Arrow PyCapsules."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, emit_all, exchange, numbers

import headgate as hg

TABLE = pa.table({"k": ["a", None, "ü"] * 10, "v": pa.array(range(30), pa.int64())})


class OnlyArray:
    """A batch of another library."""

    def __init__(self, batch):
        self._batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self._batch.__arrow_c_array__(requested_schema)


class OnlyStream:
    """A table of another library."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


INPUTS = {
    "record batch": lambda: TABLE.to_batches()[0],
    "table": lambda: TABLE,
    "chunked table": lambda: pa.concat_tables([TABLE.slice(0, 7), TABLE.slice(7)]),
    "sliced table": lambda: pa.concat_tables([TABLE.slice(29), TABLE, TABLE]).slice(1, 30),
    "record batch reader": lambda: TABLE.to_reader(max_chunksize=4),
    "polars": lambda: pl.from_arrow(TABLE),
    "polars in chunks": lambda: pl.concat(
        [pl.from_arrow(TABLE.slice(0, 7)), pl.from_arrow(TABLE.slice(7))], rechunk=False
    ),
    "polars, sliced": lambda: pl.from_arrow(TABLE).vstack(pl.from_arrow(TABLE)).slice(30, 30),
    "pandas": TABLE.to_pandas,
    "pandas of arrow": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "a batch by its capsule": lambda: OnlyArray(TABLE.to_batches()[0]),
    "a stream by its capsule": lambda: OnlyStream(TABLE),
}


@pytest.mark.parametrize("chosen", [False, True], ids=["in turn", "by a function"])
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs(environment, kind, chosen):
    producer, consumer = environment(), environment()
    selector = (lambda batch: [0] * batch.num_rows) if chosen else None
    [got] = exchange(
        producer, consumer, emit_all(INPUTS[kind]()), schema=TABLE.schema, selector=selector
    )
    assert_same(got, TABLE)


def test_batches_of_all_kinds_in_turn_stay_in_order(environment):
    producer, consumer = environment(), environment()
    whole = numbers(100)
    kinds = [
        lambda batch: batch,
        OnlyArray,
        lambda batch: batch.replace_schema_metadata({"of": "a test"}),
        lambda batch: pa.Table.from_batches([batch]),
        lambda batch: batch.cast(pa.schema([pa.field("n", pa.int64(), nullable=False)])),
    ]
    slices = [whole.slice(start, 4) for start in range(0, 100, 4)]
    emitted = [kinds[turn % len(kinds)](batch) for turn, batch in enumerate(slices)]
    [got] = exchange(producer, consumer, emit_all(*emitted), schema=NUMBERS)
    assert_same(got, pa.Table.from_batches([whole]))


def test_inputs_are_hashed_alike(environment):
    producer = environment()
    results = [
        exchange(
            producer,
            producer,
            emit_all(make()),
            n=3,
            schema=TABLE.schema,
            selector=hg.HashSelector("k"),
        )
        for make in INPUTS.values()
    ]
    for got in results[1:]:
        for table, expected in zip(got, results[0], strict=True):
            assert_same(table, expected)


def test_a_pandas_frame_with_an_index_of_its_own(environment):
    producer = environment()
    frame = TABLE.to_pandas().iloc[::-1]
    [got] = exchange(producer, producer, emit_all(frame), schema=TABLE.schema)
    assert got.column("v").to_pylist() == list(range(29, -1, -1))


def test_batches_are_read_by_other_libraries(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=TABLE.schema)
    gate = producer.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(TABLE)
    [batch] = list(hg.RecordReader(gate))
    assert pl.from_arrow(batch).equals(pl.from_arrow(TABLE))
    assert batch.to_pandas().equals(TABLE.to_pandas())
    assert pa.record_batch(OnlyArray(batch)).equals(TABLE.to_batches()[0])


def test_a_batch_may_be_changed_after_emit(environment):
    import numpy as np

    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate([partition.address(0)])
    writer = hg.RecordWriter(partition)
    values = np.arange(1000)
    writer.emit(pa.record_batch({"n": pa.array(values)}))
    values[:] = -1
    writer.finish()
    assert_same(Task(drain, gate).result(), numbers(1000))


def test_batches_stay_valid_after_everything_is_closed(link):
    producer, consumer = link()
    [got] = exchange(
        producer, consumer, emit_all(*[numbers(1000, 1000 * i) for i in range(50)]), schema=NUMBERS
    )
    consumer.close()
    producer.close()
    assert_same(got, numbers(50_000))


def test_a_broadcast_takes_the_same_inputs(environment):
    producer = environment()

    def write(writer):
        for make in INPUTS.values():
            writer.broadcast_emit(make())

    got = exchange(producer, producer, write, n=2, schema=TABLE.schema)
    for table in got:
        assert_same(table, pa.concat_tables([TABLE] * len(INPUTS)))
