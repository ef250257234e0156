"""State beyond state_memory= is in files: the same values, room that is not there, and nothing left."""

import ctypes
import gc
import json
import mmap
import random
import tracemalloc
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until
from tests.kit.windows import SCHEMA, batch_of

from headgate.errors import OptionError, SpillError
from headgate.observe.metrics import samples
from headgate.observe.state import state_of
from headgate.sink import FileSink, FunctionSink
from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SessionWindow,
    SessionWindowOperator,
    SnapshotFolder,
    TumblingWindow,
    ValueStateDescriptor,
    WindowOperator,
)
from headgate.stream.state.descriptors import RowStateDescriptor
from headgate.stream.state.memory import StateMemory, Usage, want, want_runs

LIBC = ctypes.CDLL(None)
#: Of Linux; Python has no name for it.
MADV_PAGEOUT = 21
#: As many keys as it takes for each column to be a file.
KEYS = 8000
ROWS = 3000
KEY_SCHEMAS = {
    "numbers": pa.schema([("key", pa.int64())]),
    "texts": pa.schema([("key", pa.string()), ("day", pa.int32())]),
}
SUM = ReducingStateDescriptor("sum", "sum", pa.int64())
TEXT = ValueStateDescriptor("text", pa.string())
LIST = ListStateDescriptor("list", pa.int32())
MAP = MapStateDescriptor("map", pa.int32(), pa.float64())


def keys_of(kind, numbers):
    if kind == "numbers":
        return [pa.array(numbers, pa.int64())]
    texts = [f"the key of number {number}" for number in numbers]
    return [pa.array(texts), pa.array([number % 3 for number in numbers], pa.int32())]


def change(backend, chance, kind):
    """Make random changes to each kind of state, and set a timer for each row."""
    numbers = [chance.randrange(KEYS) for _ in range(ROWS)]
    values = pa.array([chance.randrange(100) for _ in range(ROWS)], pa.int32())
    is_added = pa.array([chance.random() < 0.3 for _ in range(ROWS)])
    backend.set_keys(keys_of(kind, numbers))
    backend.get_state(SUM).add(values)
    distinct = len(backend.keys)
    texts = pa.array([f"text {chance.random()}" * chance.randrange(5) for _ in range(distinct)])
    backend.get_state(TEXT).put(texts)
    backend.get_state(LIST).add(values, where=is_added)
    backend.get_state(MAP).put(values, values.cast(pa.float64()), where=is_added)
    backend.get_state(MAP).remove(values)
    backend.event_timers.register(values.cast(pa.int64()))
    gone = pa.array([chance.random() < 0.2 for _ in range(distinct)])
    backend.get_state(TEXT).clear(where=gone)
    backend.get_state(LIST).clear(where=gone)


def contents(backend):
    """Return the rows of each state in an order of their own."""
    return {name: sorted(map(str, s.table().to_pylist())) for name, s in backend.states.items()}


@pytest.mark.parametrize("kind", KEY_SCHEMAS)
def test_state_in_files_is_that_in_memory(kind):
    memory = StateMemory(0)
    backends = [
        KeyedStateBackend(KEY_SCHEMAS[kind]),
        KeyedStateBackend(KEY_SCHEMAS[kind], memory=memory),
    ]
    stores = [SnapshotFolder(name, fs._MockFileSystem()) for name in ("memory", "files")]
    for number in range(6):
        for backend in backends:
            change(backend, random.Random(number), kind)
            assert backend.event_timers.advance(number).num_rows > 0
        assert contents(backends[0]) == contents(backends[1])
        for backend, store in zip(backends, stores, strict=True):
            backend.snapshot(number).write(store)
            backend.complete(number)
        if number == 3:
            # Each goes on from the snapshot of the other.
            for backend in backends:
                backend.close()
            backends = [
                KeyedStateBackend.restore([(stores[1], number)]),
                KeyedStateBackend.restore([(stores[0], number)], memory=memory),
            ]
            stores = [SnapshotFolder(name, fs._MockFileSystem()) for name in ("memory", "files")]
    assert memory.usage.in_files > 20 * KEYS
    assert memory.usage.in_memory == 0
    for backend in backends:
        backend.close()
    del backend, backends
    gc.collect()
    assert memory.usage == Usage(0, 0)


def test_state_up_to_the_limit_is_in_memory():
    memory = StateMemory(1 << 20)
    backend = KeyedStateBackend(KEY_SCHEMAS["numbers"], memory=memory)
    state = backend.get_state(SUM)
    for first in range(0, 100_000, 10_000):
        backend.set_keys([pa.array(range(first, first + 10_000))])
        state.add([1] * 10_000)
        assert memory.usage.in_memory <= 1 << 20
    assert memory.usage.in_files > 1 << 20
    assert state.table()["value"].to_pylist() == [1] * 100_000


#: Rows of each kind of state below, of a batch, and bytes that may be in memory.
MANY, PART, LIMIT = 60_000, 6_000, 1 << 18


@contextmanager
def giving_back(memory, of_each):
    """Check that so many bytes for each row were in blocks of the memory, and are given back."""
    before = sum(memory.usage)
    yield
    assert sum(memory.usage) <= before - of_each * MANY * 9 // 10


def timers(memory):
    backend = KeyedStateBackend(KEY_SCHEMAS["numbers"], memory=memory)
    for first in range(0, MANY, PART):
        numbers = pa.array(range(first, first + PART))
        backend.set_keys([numbers])
        backend.event_timers.register(numbers)
        yield
    with giving_back(memory, 16):
        fired = backend.event_timers.advance(MANY)
    assert fired["timestamp"].to_pylist() == list(range(MANY))


def windows_of(memory, kind, window, **options):
    keys = pa.schema([SCHEMA.field("user")])
    backend = KeyedStateBackend(keys, namespace=kind.namespace, memory=memory)
    settings = {"keys": ["user"], "time": "at", "window": window, "backend": backend}
    operator = kind(SCHEMA, **settings, **options)
    for first in range(0, MANY, PART):
        operator.process(batch_of([(f"user {n % 7}", n, n) for n in range(first, first + PART)]))
        yield
    return operator


def panes(memory):
    window = TumblingWindow(timedelta(milliseconds=2))
    aggregates = [Aggregate("count")]
    operator = yield from windows_of(memory, WindowOperator, window, aggregates=aggregates)
    # Half of the windows, so that the others must be as before.
    with giving_back(memory, 16):
        for until in (MANY // 2, MANY):
            results = operator.advance_watermark(until).results
            assert results["count"].to_pylist() == [1] * (MANY // 2)


def sessions(memory):
    window = SessionWindow(timedelta(milliseconds=6))
    lengths = []

    def function(windows):
        lengths.extend(map(len, windows["rows"].to_pylist()))
        return windows.select(["user", "window_start", "window_end"])

    operator = yield from windows_of(memory, SessionWindowOperator, window, function=function)
    with giving_back(memory, 24):
        operator.advance_watermark(2 * MANY)
    assert lengths == [1] * MANY


def waiting_rows(memory):
    backend = KeyedStateBackend(KEY_SCHEMAS["numbers"], memory=memory)
    state = backend.get_state(RowStateDescriptor("rows", pa.struct([("text", pa.string())])))
    for first in range(0, MANY, PART):
        numbers = np.arange(first, first + PART)
        backend.set_keys([pa.array(numbers % 5000)])
        values = pa.StructArray.from_arrays([pa.array(map(str, numbers.tolist()))], ["text"])
        state.keep(backend.current.batch.row_slots, values, until=numbers)
        # Their places are for the next rows.
        state.remove(state.due(first // 10))
        yield
    with giving_back(memory, 16):
        due = state.due(MANY)
    (texts,) = state.rows(due)
    assert texts.to_pylist() == [str(number) for number in range(first // 10 + 1, MANY)]


@pytest.mark.parametrize("fill", [timers, panes, sessions, waiting_rows])
def test_all_of_state_counts(fill):
    memory = StateMemory(LIMIT)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()
        for _ in fill(memory):
            assert memory.usage.in_memory <= LIMIT
            more = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
            usage = memory.usage
        assert usage.in_files > 1 << 20
        # Beside the state: its small blocks, and the last batch.
        assert more - usage.in_memory < 1 << 20
    finally:
        tracemalloc.stop()
    gc.collect()
    assert memory.usage == Usage(0, 0)


@pytest.mark.parametrize("fails", ["raise", "exit"])
def test_a_job_whose_state_is_in_files_loses_and_repeats_no_row(tmp_path, fails):
    rows = 12_000
    job = (
        stream_jobs.numbers(rows)
        .map(stream_jobs.FailOnce(tmp_path / "failed", rows // 3, fails), name="fails")
        .key_by("id")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(tmp_path / "out")), name="files")
    )
    (tmp_path / "temporary").mkdir()
    job.run(
        checkpoint=str(tmp_path / "checkpoints"),
        interval="20ms",
        parallelism=2,
        workers=0 if fails == "raise" else 2,
        restart_delay=0,
        state_memory="0",
        options={"temp_directories": str(tmp_path / "temporary")},
    )
    table = stream_jobs.rows_of(tmp_path / "out")
    assert sorted(table["id"].to_pylist()) == list(range(rows))
    assert set(table["count"].to_pylist()) == {1}
    assert not list((tmp_path / "temporary").iterdir()), "files without names"


@pytest.mark.parametrize("limit", [None, "64k"])
def test_the_size_of_state_is_in_status_report_and_series(limit):
    rows = 20_000
    job = (
        stream_jobs.numbers(rows)
        .key_by("id")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FunctionSink(len))
    )
    query = job.start(parallelism=2, state_memory=limit)
    assert query.await_termination(60)
    status = query.status
    size = status.state_sizes["counts"]
    assert list(status.state_sizes) == ["counts"]
    assert size["keys"] == rows
    assert size["bytes_in_memory"] + size["bytes_in_files"] > 16 * rows
    assert (size["bytes_in_memory"] <= 1 << 16) is (limit is not None)
    assert (size["bytes_in_files"] > 0) is (limit is not None)
    assert "counts: state of 20,000 keys" in str(status)
    assert ("in files" in str(status)) is (limit is not None)
    running = json.loads(json.dumps({**status.plain(), "state": "running"}))
    series = samples(state_of([running]))
    labels = (status.name, "counts")
    assert series["headgate_state_keys"] == [(labels, rows)]
    assert series["headgate_state_memory_bytes"] == [(labels, size["bytes_in_memory"])]
    assert series["headgate_state_file_bytes"] == [(labels, size["bytes_in_files"])]


def flags_of(values):
    """Return what the kernel knows of the mapping of an array, such as "rr" for reads at random."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(f"{values.ctypes.data:x}-"))
    return next(line for line in lines if line.startswith("VmFlags:")).split()


def test_the_kernel_reads_only_the_pages_of_a_column_that_are_used():
    memory = StateMemory(0)
    column, marks = memory.zeros(1 << 16, np.int64), memory.zeros(1 << 16, np.bool_)
    column[:] = np.arange(len(column))
    assert "rr" in flags_of(column)
    assert "rr" not in flags_of(marks)
    wider = memory.wider(column, 1 << 17)
    assert "sr" in flags_of(column)
    assert "rr" in flags_of(wider)
    want_runs(wider, [3, 1 << 16, (1 << 17) - 1], 4096)
    assert wider[: len(column)].tolist() == column.tolist()


def resident(values):
    """Return the pages of a mapped file that are in memory."""
    pages = -(-values.nbytes // mmap.PAGESIZE)
    marks = (ctypes.c_ubyte * pages)()
    start, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
    assert LIBC.mincore(start, length, marks) == 0
    return set(np.flatnonzero(np.frombuffer(marks, np.uint8) & 1).tolist())


def test_the_pages_of_a_batch_are_read_before_they_are_used():
    memory = StateMemory(0)
    column = memory.zeros(1 << 20, np.int64)
    column[:] = np.arange(len(column))
    file = column.base.obj
    file.flush()
    # Takes the pages out of memory: so the kernel does when there is no room.
    file.madvise(MADV_PAGEOUT)
    gone = set(range(1 << 11)) - resident(column)
    assert len(gone) > 1 << 10, "the kernel has written most pages to the disk"
    pages = sorted(gone)[::50]
    want(memory, column, np.array([page * 512 + page % 512 for page in pages]))
    wait_until(lambda: resident(column) >= set(pages), "the pages are in memory")
    assert len(resident(column) & gone) < 2 * len(pages), "no pages beside them are read"
    assert column[np.array(pages) * 512].tolist() == [page * 512 for page in pages]
    in_memory = StateMemory(1 << 30)
    want(in_memory, in_memory.zeros(1 << 16, np.int64), np.array([1]))


def test_a_folder_without_room_is_named():
    memory = StateMemory(0, ["/nowhere"])
    backend = KeyedStateBackend(KEY_SCHEMAS["numbers"], memory=memory)
    with pytest.raises(SpillError, match="/nowhere") as caught:
        backend.set_keys([pa.array(range(KEYS))])
    assert "state_memory" in caught.value.remedy


@pytest.mark.parametrize("wrong", [{"limit": "much"}, {"limit": 1 << 80}, {"directories": [5]}])
def test_what_is_no_memory_is_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        StateMemory(**{"limit": 0, **wrong})


def test_what_is_no_size_is_refused():
    job = stream_jobs.numbers(10).sink(FileSink("unused"))
    with pytest.raises(OptionError, match="state_memory='much'"):
        job.start(state_memory="much")
    with pytest.raises(OptionError, match="state_memory=-1"):
        job.start(state_memory=-1)
