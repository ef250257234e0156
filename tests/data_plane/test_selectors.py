"""Subpartitions that the selectors choose for rows and records."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, emit_all, exchange, numbers, split_by

import headgate as hg
from headgate._native import hash_partition_ids

KEYED = pa.record_batch(
    {
        "user": pa.array([f"user {i % 7}" if i % 11 else None for i in range(1000)]),
        "day": pa.array([i % 31 for i in range(1000)], pa.int32()),
        "value": pa.array([float(i) for i in range(1000)]),
    }
)


@pytest.mark.parametrize("columns", ["user", ["user"], ["day", "user"], ["value"]], ids=str)
def test_hash_puts_rows_where_spark_does(link, columns):
    producer, consumer = link()
    selector = hg.HashSelector(columns)
    got = exchange(producer, consumer, emit_all(KEYED), n=5, schema=KEYED.schema, selector=selector)
    ids = hash_partition_ids(KEYED, list(selector.columns), 5)
    for table, expected in zip(got, split_by(pa.table(KEYED), ids, 5), strict=True):
        assert_same(table, expected)
    assert sum(table.num_rows for table in got) == 1000


def test_hash_over_many_batches_keeps_each_key_in_one_place(link):
    producer, consumer = link()
    pieces = [KEYED.slice(start, 77) for start in range(0, 1000, 77)]
    got = exchange(
        producer,
        consumer,
        emit_all(*pieces),
        n=3,
        schema=KEYED.schema,
        selector=hg.HashSelector("user"),
    )
    users = [set(table.column("user").to_pylist()) for table in got]
    assert sum(len(some) for some in users) == len(set().union(*users))
    assert sum(table.num_rows for table in got) == 1000


def test_known_hashes_of_spark():
    # select pmod(hash(k), 7) from values (0L), (1L), (-1L), (null), in Spark 4.
    batch = pa.record_batch({"k": pa.array([0, 1, -1, None], pa.int64())})
    hashes = [-1670924195, -1712319331, -939490007, 42]
    assert hash_partition_ids(batch, ["k"], 7).to_pylist() == [h % 7 for h in hashes]


def test_all_rows_of_one_key_and_one_subpartition(link):
    producer, consumer = link()
    batch = pa.record_batch({"k": pa.array(["same"] * 20_000), "n": pa.array(range(20_000))})
    got = exchange(
        producer, consumer, emit_all(batch), n=4, schema=batch.schema, selector=hg.HashSelector("k")
    )
    assert sorted(table.num_rows for table in got) == [0, 0, 0, 20_000]
    assert_same(max(got, key=len), batch)


@pytest.mark.parametrize("start", [0, 2, 7])
def test_round_robin_by_batch(link, start):
    producer, consumer = link()
    batches = [numbers(5, 5 * turn) for turn in range(7)]
    got = exchange(
        producer,
        consumer,
        emit_all(*batches),
        n=3,
        schema=NUMBERS,
        selector=hg.RoundRobinSelector(start),
    )
    for index, table in enumerate(got):
        assert_same(table, pa.Table.from_batches(batches[(index - start) % 3 :: 3], NUMBERS))


def test_broadcast_to_all(link):
    producer, consumer = link()
    batches = [numbers(10_000, 10_000 * turn) for turn in range(7)]
    got = exchange(
        producer,
        consumer,
        emit_all(*batches),
        n=3,
        schema=NUMBERS,
        selector=hg.BroadcastSelector(),
    )
    for table in got:
        assert_same(table, numbers(70_000))


def test_broadcast_and_choice_keep_the_order_of_emits(link):
    producer, consumer = link()

    def write(writer):
        for turn in range(100):
            writer.emit(numbers(2, 10 * turn))
            writer.broadcast_emit(numbers(1, 10 * turn + 5))

    got = exchange(
        producer, consumer, write, n=2, schema=NUMBERS, selector=lambda batch: [0, 1][: len(batch)]
    )
    for index, table in enumerate(got):
        expected = [n for turn in range(100) for n in (10 * turn + index, 10 * turn + 5)]
        assert table.column("n").to_pylist() == expected


KINDS = {
    "list": list,
    "tuple": tuple,
    "range": lambda ids: range(len(ids)) if ids == list(range(len(ids))) else list(ids),
    "numpy int64": lambda ids: np.array(ids, np.int64),
    "numpy uint8": lambda ids: np.array(ids, np.uint8),
    "numpy int32, strided": lambda ids: np.repeat(np.array(ids, np.int32), 2)[::2],
    "pyarrow int64": lambda ids: pa.array(ids, pa.int64()),
    "pyarrow uint32": lambda ids: pa.array(ids, pa.uint32()),
    "pyarrow sliced": lambda ids: pa.array([9, *ids], pa.uint32()).slice(1),
    "pyarrow chunked": lambda ids: pa.chunked_array([ids[:2], ids[2:]], pa.int64()),
    "pandas": pd.Series,
    "polars": pl.Series,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_may_return(environment, kind):
    producer = environment()
    ids = [2, 0, 1, 1, 0, 2, 2, 0]
    seen = []

    def choose(batch):
        assert isinstance(batch, pa.RecordBatch)
        seen.append(batch.num_rows)
        return KINDS[kind](ids)

    got = exchange(producer, producer, emit_all(numbers(8)), n=3, schema=NUMBERS, selector=choose)
    assert seen == [8]
    for table, expected in zip(got, split_by(pa.table(numbers(8)), pa.array(ids), 3), strict=True):
        assert_same(table, expected)


WRONG = {
    "too short": [0, 1],
    "too long": [0] * 9,
    "empty": [],
    "negative": [0, 1, 0, -1, 0, 1, 0, 1],
    "out of range": [0, 1, 0, 2, 0, 1, 0, 1],
    "far out of range": [0, 1, 0, 2**40, 0, 1, 0, 1],
    "null": [0, 1, 0, None, 0, 1, 0, 1],
    "all null": [None] * 8,
    "floats": [0.5] * 8,
    "whole floats": [0.0] * 8,
    "numpy floats": np.zeros(8),
    "text": ["0"] * 8,
    "booleans": [True] * 8,
    "a number": 0,
    "nothing": None,
    "two dimensions": np.zeros((8, 1), np.int64),
    "dates": pa.array([0] * 8, pa.date32()),
    "structs": [{"a": 0}] * 8,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_choices_lose_no_emitted_row(environment, wrong):
    producer = environment()
    answers = iter([[0] * 8, WRONG[wrong], [0] * 8])

    def write(writer):
        writer.emit(numbers(8))
        with pytest.raises(hg.errors.SelectorError):
            writer.emit(numbers(8, 100))
        writer.emit(numbers(8, 8))

    got = exchange(producer, producer, write, n=2, schema=NUMBERS, selector=lambda _: next(answers))
    assert_same(got[0], numbers(16))
    assert got[1].num_rows == 0


def test_a_late_row_out_of_range_emits_none_of_its_batch(link):
    producer, consumer = link()
    count = 200_000
    ids = np.zeros(count, np.int64)
    ids[-1] = 2

    def write(writer):
        with pytest.raises(hg.errors.SelectorError, match=str(count - 1)):
            writer.emit(numbers(count))
        writer.emit(numbers(1))

    got = exchange(
        producer,
        consumer,
        write,
        n=2,
        schema=NUMBERS,
        selector=lambda b: ids[-1:] * 0 if len(b) == 1 else ids,
    )
    assert [table.num_rows for table in got] == [1, 0]


def test_an_exception_of_the_function_is_the_cause_of_an_error_that_names_the_batch(environment):
    producer = environment()
    partition = producer.create_result_partition(2)

    def choose(batch):
        if batch.num_rows > 1:
            raise ZeroDivisionError("in my own words")
        return [0]

    writer = hg.RecordWriter(partition, NUMBERS, selector=choose)
    writer.emit(numbers(1))
    with pytest.raises(hg.errors.SelectorError, match=r"in my own words") as caught:
        writer.emit(numbers(3))
    assert "batch 2, 3 rows" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    writer.emit(numbers(1))


def test_ctrl_c_in_the_function_stays_a_keyboard_interrupt(environment):
    def choose(record):
        raise KeyboardInterrupt

    writer = hg.RecordWriter(
        environment().create_result_partition(2), serializer="pickle", selector=choose
    )
    with pytest.raises(KeyboardInterrupt):
        writer.emit({})


def test_a_stream_is_chosen_for_batch_by_batch(environment):
    producer = environment()
    sizes = []
    reader = pa.RecordBatchReader.from_batches(NUMBERS, [numbers(3), numbers(0), numbers(2, 3)])

    def choose(batch):
        sizes.append(batch.num_rows)
        return [len(sizes) % 2] * batch.num_rows

    got = exchange(producer, producer, emit_all(reader), n=2, schema=NUMBERS, selector=choose)
    assert sizes == [3, 0, 2]
    assert [table.num_rows for table in got] == [0, 5]


def test_selectors_refuse_invalid_arguments(environment):
    with pytest.raises(hg.errors.SelectorError):
        hg.HashSelector([])
    with pytest.raises(hg.errors.SelectorError):
        hg.RoundRobinSelector(-1)
    with pytest.raises(hg.errors.SelectorError, match="neither"):
        hg.RecordWriter(environment().create_result_partition(1), NUMBERS, selector="user")


def test_a_start_beyond_all_numbers_is_taken_modulo(environment):
    producer = environment()
    got = exchange(
        producer,
        producer,
        emit_all(numbers(5)),
        n=3,
        schema=NUMBERS,
        selector=hg.RoundRobinSelector(2**40 + 1),
    )
    assert [table.num_rows for table in got] == [0, 0, 5]


@pytest.mark.parametrize("n", [1, 2, 64])
def test_many_subpartitions(link, n):
    producer, consumer = link(memory="32m", segment_size="16k")
    batch = numbers(5000)
    got = exchange(
        producer,
        consumer,
        emit_all(batch),
        n=n,
        schema=NUMBERS,
        selector=lambda b: np.arange(len(b)) % n,
    )
    for index, table in enumerate(got):
        assert table.column("n").to_pylist() == list(range(index, 5000, n))


def test_a_task_reports_an_exception_of_the_selector_as_the_cause(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate([partition.address(0)])

    def produce():
        with hg.RecordWriter(partition, selector=lambda _: 1 / 0) as writer:
            writer.emit(numbers(1))

    assert isinstance(Task(produce).error().__cause__, ZeroDivisionError)
    error = Task(next, hg.RecordReader(gate)).error(5)
    assert isinstance(error, hg.errors.ProducerFailedError)
    assert "ZeroDivisionError: division by zero" in str(error)
