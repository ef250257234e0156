"""Reading into memory of the caller."""

import random
import time

import numpy as np
import pyarrow as pa
import pytest
from plane import NUMBERS, Task, numbers, open_gates, wait_until

import headgate as hg
from headgate import flink

COLUMNS = {
    "i8": (pa.int8(), "i1"),
    "u16": (pa.uint16(), "u2"),
    "i64": (pa.int64(), "i8"),
    "f16": (pa.float16(), "f2"),
    "f32": (pa.float32(), "f4"),
    "f64": (pa.float64(), "f8"),
    "flag": (pa.bool_(), "?"),
    "at": (pa.timestamp("us"), "M8[us]"),
    "at_ns": (pa.timestamp("ns", "UTC"), "M8[ns]"),
    "at_number": (pa.timestamp("ms"), "i8"),
    "took": (pa.duration("s"), "m8[s]"),
    "day": (pa.date32(), "M8[D]"),
    "day_number": (pa.date32(), "i4"),
    "day_ms": (pa.date64(), "i8"),
    "time": (pa.time32("ms"), "i4"),
    "time_us": (pa.time64("us"), "i8"),
    "id": (pa.binary(4), "V4"),
    "code": (pa.binary(4), "S4"),
}
SCHEMA = pa.schema([(name, arrow) for name, (arrow, _) in COLUMNS.items()])
DTYPE = np.dtype([(name, dtype) for name, (_, dtype) in COLUMNS.items()])


def column(name, arrow, rows, start, nulls):
    numbers_ = [(start + row) % 100 for row in range(rows)]
    if pa.types.is_fixed_size_binary(arrow):
        values = [b"%04d" % number for number in numbers_]
    elif pa.types.is_boolean(arrow):
        values = [number % 3 == 0 for number in numbers_]
    elif pa.types.is_floating(arrow):
        return pa.array([None if n % 7 == 0 and nulls else n / 4 for n in numbers_]).cast(arrow)
    else:
        days = 86_400_000 if name == "day_ms" else 1
        width = pa.int64() if arrow.bit_width == 64 else pa.int32()
        values = [None if n % 7 == 0 and nulls else n * days for n in numbers_]
        return pa.array(values, arrow if pa.types.is_integer(arrow) else width).cast(arrow)
    values = [None if n % 7 == 0 and nulls else v for n, v in zip(numbers_, values, strict=True)]
    return pa.array(values, arrow)


def table(rows, start=0, nulls=False):
    columns = [column(name, arrow, rows, start, nulls) for name, (arrow, _) in COLUMNS.items()]
    return pa.record_batch(columns, schema=SCHEMA)


def reading(link, batches, schema=SCHEMA, finish=True, **options):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=schema)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition)
    for batch in batches:
        writer.emit(batch)
        writer.flush()
    if finish:
        writer.finish()
    return flink.MutableRecordReader(gate, **options), writer


def physical(array, name):
    """Return the values of an Arrow column as numpy holds them, without nulls."""
    arrow, dtype = COLUMNS[name]
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    known = array.drop_null()
    if pa.types.is_fixed_size_binary(arrow):
        return np.array([value.as_py() for value in known], f"S{arrow.byte_width}").view(dtype)
    if pa.types.is_boolean(arrow) or pa.types.is_floating(arrow) or pa.types.is_integer(arrow):
        return known.to_numpy(zero_copy_only=False)
    width = pa.int64() if arrow.bit_width == 64 else pa.int32()
    return known.cast(width).to_numpy().astype(dtype)


@pytest.mark.parametrize("as_dict", [False, True], ids=["structured", "dict"])
@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("seed", range(2))
def test_every_fixed_width_type_row_by_row(link, as_dict, nulls, seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    batches = [table(rng.randrange(1, 40), rng.randrange(50), nulls) for _ in range(6)]
    reader, _ = reading(link, batches)
    expected = pa.Table.from_batches(batches)
    room = rng.randrange(1, 50)
    rows = np.zeros(room, DTYPE)
    out = {name: np.zeros(room, dtype) for name, (_, dtype) in COLUMNS.items()} if as_dict else rows
    masks = {name: np.ones(room, bool) for name in COLUMNS} if nulls else None
    got = {name: [] for name in COLUMNS}
    gone = {name: [] for name in COLUMNS}
    total = 0
    while (count := reader.read_into(out, masks=masks)) is not None:
        assert 0 < count <= room
        total += count
        for name in COLUMNS:
            mask = masks[name][:count] if nulls else np.zeros(count, bool)
            gone[name].append(mask.copy())
            got[name].append(out[name][:count][~mask].copy())
    assert total == expected.num_rows
    assert reader.is_finished
    for name in COLUMNS:
        assert np.array_equal(np.concatenate(gone[name]), expected[name].is_null().to_numpy())
        assert np.array_equal(np.concatenate(got[name]), physical(expected[name], name)), name


def test_it_fills_available_rows_and_blocks_only_for_the_first(link):
    reader, writer = reading(link, [numbers(5)], NUMBERS, finish=False)
    out = {"n": np.zeros(8, np.int64)}
    assert Task(reader.read_into, out).result() == 5
    assert out["n"].tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    waiting = Task(reader.read_into, out)
    time.sleep(0.03)
    assert waiting.running
    writer.emit(numbers(20, 5))
    writer.finish()
    got = [waiting.result()]
    got += [Task(reader.read_into, out).result() for _ in range(3)]
    assert sum(count or 0 for count in got) == 20
    assert got[-1] is None
    assert reader.is_finished
    assert reader.read_into(out) is None


def test_a_null_without_a_mask_keeps_its_rows_for_later(link):
    batches = [
        pa.record_batch({"n": pa.array([1, 2], pa.int64())}),
        pa.record_batch({"n": pa.array([3, None], pa.int64())}),
    ]
    reader, _ = reading(link, batches, NUMBERS)
    out = {"n": np.zeros(9, np.int64)}
    wait_until(reader._native.is_available)
    filled = reader.read_into(out)
    assert out["n"][:filled].tolist() == [1, 2]
    for _ in range(2):
        with pytest.raises(hg.errors.OptionError, match="'n' holds 1 nulls and has no mask"):
            reader.read_into(out)
        assert not reader.is_finished
    masks = {"n": np.zeros(9, bool)}
    assert reader.read_into(out, masks=masks) == 2
    assert masks["n"][:2].tolist() == [False, True]
    assert out["n"][0] == 3
    assert reader.read_into(out) is None


def test_columns_that_are_not_named_are_skipped(link):
    reader, _ = reading(link, [table(5)])
    out = {"i64": np.zeros(5, np.int64)}
    assert reader.read_into(out) == 5
    assert out["i64"].tolist() == [0, 1, 2, 3, 4]


def test_strided_memory_is_filled_in_place(link):
    reader, _ = reading(link, [numbers(5)], NUMBERS)
    memory = np.full((5, 2), -1, np.int64)
    assert reader.read_into({"n": memory[:, 1]}) == 5
    assert memory.tolist() == [[-1, row] for row in range(5)]


@pytest.mark.parametrize(
    ("out", "masks", "says"),
    [
        ([1, 2], None, "out is list"),
        (np.zeros(4, np.int64), None, "out is ndarray"),
        ({}, None, "no rows to fill"),
        ({"n": np.zeros(0, np.int64)}, None, "no rows to fill"),
        ({"n": np.zeros((2, 2), np.int64)}, None, "no rows to fill"),
        ({"n": [1, 2]}, None, "no rows to fill"),
        ({"m": np.zeros(4, np.int64)}, None, "'m' that the records do not have"),
        ({"n": np.zeros(4, np.int32)}, None, "'n' is int64, its array in out is int32"),
        ({"n": np.zeros(4, ">i8")}, None, "its array in out is >i8"),
        ({"text": np.zeros(4, "S4")}, None, "'text' is string: it has no fixed width"),
        ({"n": np.broadcast_to(np.int64(3), 4)}, None, "read-only"),
        ({"n": np.zeros(4, np.int64)}, {"n": np.zeros(3, bool)}, "mask of 'n'"),
        ({"n": np.zeros(4, np.int64)}, {"n": np.zeros(4, np.uint8)}, "mask of 'n'"),
        ({"n": np.zeros(4, np.int64)}, {"text": np.zeros(4, bool)}, "mask of 'text'"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_is_read(environment, out, masks, says):
    schema = pa.schema([("n", pa.int64()), ("text", pa.utf8())])
    env = environment()
    partition = env.create_result_partition(1, schema=schema)
    with hg.RecordWriter(partition) as writer:
        writer.emit(pa.record_batch([[7], ["a"]], schema=schema))
    reader = flink.MutableRecordReader(*open_gates(partition, env))
    with pytest.raises(hg.errors.OptionError, match=says):
        reader.read_into(out, masks=masks)
    good = {"n": np.zeros(4, np.int64)}
    assert reader.read_into(good) == 1
    assert good["n"][0] == 7


@pytest.mark.parametrize("kind", [bytearray, lambda n: memoryview(bytearray(n)), np.zeros])
def test_bytes_records_go_into_the_callers_bytes(link, kind):
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    reader = flink.MutableRecordReader(gate, serializer="bytes")
    records = [b"one", b"", bytes(range(100)), b"x" * 200_000, b"last"]

    def produce():
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            for record in records:
                writer.emit(record)

    writing = Task(produce)
    small = kind(100) if kind is not np.zeros else np.zeros(100, np.uint8)
    large = bytearray(200_000)

    def consume():
        got, out = [], small
        while True:
            try:
                count = reader.read_into(out)
            except hg.errors.RecordTooLargeError:
                # The record is kept: the same buffer fails again, a larger one gets it.
                with pytest.raises(hg.errors.RecordTooLargeError, match=r"200000 .* fit 100 bytes"):
                    reader.read_into(out)
                out = large
                continue
            if count is None:
                return got
            got.append(bytes(out[:count]))
            out = small

    assert Task(consume).result() == records
    writing.result()
    assert reader.totals()[0] == len(records)


@pytest.mark.parametrize("out", [b"read-only", np.zeros(4, np.int64), np.zeros((2, 2), np.uint8)])
def test_a_refused_buffer_loses_no_record(environment, out):
    env = environment()
    partition = env.create_result_partition(1)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"kept")
    reader = flink.MutableRecordReader(*open_gates(partition, env), serializer="bytes")
    with pytest.raises(BufferError):
        reader.read_into(out)
    buffer = bytearray(4)
    assert reader.read_into(buffer) == 4
    assert buffer == b"kept"


def test_events_are_heard_between_rows(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    events = []
    reader = flink.MutableRecordReader(gate, on_event=events.append)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(2))
        writer.broadcast_event("mine", b"1")
        writer.emit(numbers(2, 2))
    out = {"n": np.zeros(8, np.int64)}

    def read():
        rows = []
        while count := reader.read_into(out):
            rows += out["n"][:count].tolist()
        return rows

    assert Task(read).result() == [0, 1, 2, 3]
    assert [event.name for event in events] == ["mine"]
    assert reader.is_finished


def test_an_error_after_rows_comes_with_the_next_call(environment):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    reader = flink.MutableRecordReader(*open_gates(partition, env))
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(3))
    writer.flush()
    out = {"n": np.zeros(2, np.int64)}
    assert reader.read_into(out) == 2
    writer.fail("broken")
    assert reader.read_into(out) == 1
    assert out["n"][0] == 2
    with pytest.raises(hg.HeadgateError, match="broken"):
        reader.read_into(out)
    assert not reader.is_finished
