"""A forked child reads its parent's batches as they were at the fork, or it ends by a signal."""

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest
from plane import NUMBERS, Task, numbers
from test_forks import HANGS, in_child, wait_for

import headgate as hg

ROWS = 5000


class Reading:
    """A reader over a link within the host, whose writer goes on as memory comes back."""

    def __init__(self, producer, consumer):
        self.partition = producer.create_result_partition(1, schema=NUMBERS)
        self.reader = hg.RecordReader(consumer.create_input_gate([self.partition.address(0)]))
        self.writing = Task(self._write)

    def _write(self):
        with hg.RecordWriter(self.partition) as writer:
            for turn in range(400):
                writer.emit(numbers(ROWS, ROWS * turn))
                writer.flush()

    def next(self):
        return Task(next, self.reader).result()

    def finish(self):
        """Read to the end; all memory is reused several times."""
        rows = Task(lambda: sum(batch.num_rows for batch in self.reader)).result()
        self.writing.result()
        return rows


@pytest.fixture
def reading(environment):
    producer, consumer = (environment(same_host_link="auto") for _ in range(2))
    made = Reading(producer, consumer)
    yield made
    # Nothing was read to the end if a test failed: the writer would wait for ever.
    made.partition.close()
    made.reader.close()
    made.writing.join()


def first_row(batch):
    return batch["n"][0].as_py()


def check(kept, starts):
    """Assert that batches of consecutive rows start with these rows."""
    for batch, start in zip(kept, starts, strict=True):
        assert batch["n"].to_pylist() == list(range(start, start + batch.num_rows))


def fork_with(child, *, fork=os.fork):
    """Fork; return a function that lets the child run and returns its exit code and what it says."""
    go_read, go_write = os.pipe()
    said_read, said_write = os.pipe()
    process = fork()
    if process == 0:
        os.close(go_write)
        os.read(go_read, 1)
        text = "fine"
        try:
            child()
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            text = f"{type(error).__name__}: {error}"
        os.write(said_write, text.encode()[:4000])
        os._exit(0)
    os.close(go_read)
    os.close(said_write)

    def run(*, may_hang=False):
        os.write(go_write, b"g")
        os.close(go_write)
        code = wait_for(process, may_hang=may_hang)
        text = os.read(said_read, 5000).decode()
        os.close(said_read)
        return code, text

    return run


def expect_a_signal():
    """Let this child end by a signal without a stack in the output and without a file of its memory."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_a_child_keeps_the_rows_that_its_parent_drops(reading):
    kept = [reading.next() for _ in range(3)]
    starts = [first_row(batch) for batch in kept]
    assert starts[0] == 0
    run = fork_with(lambda: check(kept, starts))
    kept = None
    gc.collect()
    assert reading.finish() > 100 * ROWS
    assert run() == (0, "fine")


def test_a_child_keeps_rows_read_in_process_from_memory_that_is_lent_too(environment):
    producer, consumer = (environment(same_host_link="auto") for _ in range(2))
    over_a_link = Reading(producer, consumer)
    assert over_a_link.finish() == 400 * ROWS  # the pool of the producer is shared from now on
    within = Reading(producer, producer)
    kept = [within.next() for _ in range(3)]
    starts = [first_row(batch) for batch in kept]
    run = fork_with(lambda: check(kept, starts))
    kept = None
    gc.collect()
    assert within.finish() > 100 * ROWS
    assert run() == (0, "fine")


def test_a_parent_and_its_children_read_the_same_rows(reading):
    kept = [reading.next() for _ in range(3)]
    starts = [first_row(batch) for batch in kept]

    def fork_again():
        check(kept, starts)
        in_child(lambda: check(kept, starts))

    for _ in range(3):
        in_child(fork_again)
        check(kept, starts)
    del kept[1]
    gc.collect()
    in_child(lambda: check(kept, [starts[0], starts[2]]))
    reading.finish()
    check(kept, [starts[0], starts[2]])


def test_batches_that_share_a_page_of_the_kernel_are_copied_together(environment):
    producer, consumer = (environment(same_host_link="auto", segment_size="4k") for _ in range(2))
    partition = producer.create_result_partition(1, schema=NUMBERS)
    reader = hg.RecordReader(consumer.create_input_gate([partition.address(0)]))
    with hg.RecordWriter(partition) as writer:
        kept = []
        for turn in range(8):
            writer.emit(numbers(150, 150 * turn))  # a part of a segment that is lent at once
            writer.flush()
            kept.append(Task(next, reader).result())
    starts = [150 * turn for turn in range(8)]
    assert consumer.stats()["connections"]["same_host"] == 1
    assert producer.stats()["lent"]["now"] > 0
    in_child(lambda: check(kept, starts))
    check(kept, starts)


def test_children_of_multiprocessing_read_what_their_parent_kept(reading):
    kept = [reading.next() for _ in range(2)]
    context = multiprocessing.get_context("fork")
    with context.Pool(2, initializer=_remember, initargs=(kept,)) as pool:
        total = sum(batch.num_rows for batch in kept)
        kept = None
        gc.collect()
        reading.finish()
        assert pool.apply_async(_remembered).get(10) == list(range(total))


#: Batches that a child of a pool got at its fork.
_batches = []


def _remember(batches):
    _batches.extend(batches)


def _remembered():
    return [number for batch in _batches for number in batch["n"].to_pylist()]


@pytest.mark.soak
def test_a_child_of_which_python_was_not_told_ends_where_it_would_read_other_rows(reading):
    fork = getattr(ctypes.PyDLL(None), "_Fork", None)  # _Fork runs no fork handlers
    if fork is None:
        pytest.skip("needs glibc 2.34")
    kept = reading.next()

    def read():
        expect_a_signal()
        check([kept], [0])

    runs = [fork_with(read, fork=fork) for _ in range(4)]
    reading.finish()
    ends = [run(may_hang=True) for run in runs]
    assert (-signal.SIGSEGV, "") in ends
    assert set(ends) <= {(-signal.SIGSEGV, ""), (HANGS, "")}


def test_a_fork_without_descriptors_says_so_and_its_child_reads_no_other_rows(reading, monkeypatch):
    kept = reading.next()
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda info: told.append(str(info.exc_value)))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = 0
    go_read, go_write = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (go_write + 1, limits[1]))
    full = []
    try:
        while True:
            try:
                full.append(os.dup(go_write))
            except OSError:
                break
        process = os.fork()
        if process == 0:
            expect_a_signal()
            check([kept], [0])
            os._exit(0)
    finally:
        if process:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for descriptor in (*full, go_read, go_write):
        os.close(descriptor)
    assert wait_for(process) == -signal.SIGSEGV
    [text] = told
    assert "cannot be copied for a forked child" in text
    check([kept], [0])


def test_forks_leave_no_descriptor_and_no_copy_in_the_parent(reading):
    kept = [reading.next() for _ in range(2)]

    def open_now():
        return len(list(Path("/proc/self/fd").iterdir())), _memory_files()

    in_child(lambda: None)
    before = open_now()
    for _ in range(10):
        in_child(lambda: check(kept, [0, kept[0].num_rows]))
    assert open_now() == before


def _memory_files():
    maps = Path("/proc/self/maps").read_text(encoding="ascii")
    lines = [line for line in maps.splitlines() if "memfd:headgate" in line]
    assert lines, "the text to search for is not empty"
    return len(lines)
