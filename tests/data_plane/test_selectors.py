"""Contract of the selectors: the subpartitions that each chooses for rows and for records.

Their rules are tested in rust_core/record/src/selector.rs.
"""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, emit_all, exchange, numbers, split_by

import headgate as hg
from headgate import flink
from headgate._native import hash_partition_ids

KEYED = pa.record_batch(
    {
        "user": pa.array([f"user {i % 7}" if i % 11 else None for i in range(1000)]),
        "day": pa.array([i % 31 for i in range(1000)], pa.int32()),
        "value": pa.array([float(i) for i in range(1000)]),
    }
)


@pytest.mark.parametrize("columns", ["user", ["user"], ["day", "user"], ["value"]], ids=str)
def test_hash_puts_rows_where_spark_does(environment, columns):
    producer, consumer = environment(), environment()
    selector = hg.HashSelector(columns)
    got = exchange(producer, consumer, emit_all(KEYED), n=5, schema=KEYED.schema, selector=selector)
    ids = hash_partition_ids(KEYED, list(selector.columns), 5)
    for table, expected in zip(got, split_by(pa.table(KEYED), ids, 5), strict=True):
        assert_same(table, expected)
    assert sum(table.num_rows for table in got) == 1000


def test_known_hashes_of_spark():
    # select pmod(hash(k), 7) from values (0L), (1L), (-1L), (null), in Spark 4.
    batch = pa.record_batch({"k": pa.array([0, 1, -1, None], pa.int64())})
    hashes = [-1670924195, -1712319331, -939490007, 42]
    assert hash_partition_ids(batch, ["k"], 7).to_pylist() == [h % 7 for h in hashes]


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


#: Records of each serializer, whose order is that in which they are emitted.
RECORDS = {
    "arrow": [numbers(1, turn) for turn in range(12)],
    "bytes": [turn.to_bytes(1) for turn in range(12)],
    "pickle": list(range(12)),
}


@pytest.fixture(params=RECORDS)
def serializer(request):
    return request.param


@pytest.fixture
def placed(environment):
    """Emit records one by one; return the subpartition of each."""
    env = environment()

    def place(selector, records, *, n=4, serializer="arrow"):
        options = {"schema": NUMBERS} if serializer == "arrow" else {"serializer": serializer}
        got = exchange(env, env, emit_all(*records), n=n, selector=selector, **options)
        places = {}
        for index, rows in enumerate(got):
            for row in rows.column("n").to_pylist() if serializer == "arrow" else rows:
                places[row] = index
        return [places[row] for row in sorted(places)]

    return place


def test_rebalance_is_consecutive_from_any_start(placed, serializer):
    starts = set()
    for _ in range(25):
        places = placed(hg.RebalanceSelector(), RECORDS[serializer], serializer=serializer)
        assert all((b - a) % 4 == 1 for a, b in pairwise(places))
        starts.add(places[0])
    # All of 25 writers start alike in 1 of 2**48 runs.
    assert len(starts) > 1


@pytest.mark.parametrize(
    ("selector", "n", "expected"),
    [
        (hg.ForwardSelector(), 4, [0] * 12),
        (hg.GlobalSelector(), 4, [0] * 12),
        (hg.RoundRobinSelector(7), 3, [1, 2, 0] * 4),
        (hg.RescaleSelector(), 3, [0, 1, 2] * 4),
        (hg.RescaleSelector(producer=1, num_producers=2), 4, [2, 3] * 6),
    ],
    ids=["forward", "global", "round robin", "rescale", "rescale of two"],
)
def test_selectors_that_count_place_each_record(placed, serializer, selector, n, expected):
    assert placed(selector, RECORDS[serializer], n=n, serializer=serializer) == expected


def test_shuffle_repeats_with_its_seed_and_reaches_everybody(placed, serializer):
    def shuffled(seed):
        return placed(hg.ShuffleSelector(seed=seed), RECORDS[serializer], serializer=serializer)

    first = shuffled(7)
    assert first == shuffled(7)
    others = [shuffled(seed) for seed in range(5)]
    assert any(other != first for other in others)
    assert set(sum(others, first)) == set(range(4))


def test_by_rows_each_row_of_a_batch_is_a_record(placed):
    batches = [numbers(size, 100 * turn) for turn, size in enumerate([5, 0, 1, 6])]
    places = placed(hg.RoundRobinSelector(start=1, by_rows=True), batches)
    assert places == [(1 + turn) % 4 for turn in range(12)]
    places = placed(hg.RebalanceSelector(by_rows=True), batches)
    assert all((b - a) % 4 == 1 for a, b in pairwise(places))
    assert placed(hg.RescaleSelector(0, 2, by_rows=True), batches) == [0, 1] * 6


def test_rescale_shares_subpartitions_out_as_flink_does():
    for producers, consumers in product(range(1, 9), range(1, 9)):
        groups = [hg.RescaleSelector(i, producers).group(consumers) for i in range(producers)]
        shares = Counter(index for group in groups for index in group)
        assert set(shares) == set(range(consumers))  # every consumer is reached
        if producers <= consumers:
            assert set(shares.values()) == {1}
            assert groups[0].start == 0
            assert all(a.stop == b.start for a, b in pairwise(groups))
            sizes = [len(group) for group in groups]
            assert max(sizes) - min(sizes) <= 1
        else:
            # Flink: consumer j reads the producers from j * P // C to (j + 1) * P // C - 1.
            for index in range(consumers):
                mine = range(index * producers // consumers, (index + 1) * producers // consumers)
                assert [i for i, group in enumerate(groups) if index in group] == [*mine]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hg.HashSelector([]), "column"),
        (lambda: hg.RoundRobinSelector(-1), "start=-1"),
        (lambda: hg.ShuffleSelector(-1), "seed=-1"),
        (lambda: hg.ShuffleSelector(2**64), f"seed={2**64}"),
        (lambda: hg.RescaleSelector(2, 2), "producer=2 is not one of 2"),
        (lambda: hg.RescaleSelector(-1), "producer=-1"),
        (lambda: hg.RescaleSelector(0, 0), "of 0 producers"),
        (lambda: hg.KeyGroupSelector("n", 0), "max_parallelism=0"),
        (lambda: hg.KeyGroupSelector("n", 32769), "max_parallelism=32769"),
    ],
)
def test_selectors_that_make_no_sense_are_refused(make, said):
    with pytest.raises(hg.errors.SelectorError, match=said):
        make()
    assert hg.ShuffleSelector(2**64 - 1).seed == 2**64 - 1


def test_selectors_that_do_not_fit_a_writer_are_refused(environment):
    partition = environment().create_result_partition(2)
    with pytest.raises(hg.errors.SelectorError, match="neither"):
        hg.RecordWriter(partition, NUMBERS, selector="user")
    for selector in (hg.HashSelector("n"), hg.KeyGroupSelector("n")):
        for kind in ("bytes", "pickle"):
            with pytest.raises(hg.errors.SelectorError, match="no columns"):
                hg.RecordWriter(partition, selector=selector, serializer=kind)


def test_random_emit_goes_to_one_and_reaches_all(environment, serializer):
    def write(to):
        for turn in range(200):
            one = pa.Table.from_batches([numbers(1, 2 * turn), numbers(1, 2 * turn + 1)])
            flink.random_emit(
                to, {"arrow": one, "bytes": turn.to_bytes(1), "pickle": turn}[serializer]
            )

    env = environment()
    options = {"schema": NUMBERS} if serializer == "arrow" else {"serializer": serializer}
    got = exchange(env, env, write, n=3, selector=hg.BroadcastSelector(), **options)
    rows = [t.column("n").to_pylist() if serializer == "arrow" else t for t in got]
    assert all(len(some) > 20 for some in rows)  # 67 on average: 7 standard deviations
    assert all(some == sorted(some) for some in rows)
    flat = sorted(row for some in rows for row in some)
    expected = range(400) if serializer == "arrow" else range(200)
    assert flat == ([n.to_bytes(1) for n in expected] if serializer == "bytes" else [*expected])
