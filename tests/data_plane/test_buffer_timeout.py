"""Sending by time, with each record, or only when a buffer is full."""

import os
import time

import pytest
from plane import NUMBERS, Task, drain, numbers, open_gates, wait_until
from tests.kit import resources

import headgate as hg

#: Seconds after which a flush that is due every 10 ms counts as missing.
QUIET = 0.3
KINDS = ["arrow", "bytes"]


def flushers():
    """Return the number of output flushers; the kernel keeps 15 bytes of a thread's name."""
    return resources.native_threads().count("headgate-flusher"[:15])


def wait_for_flushers(number):
    """Wait, as a thread sets its name once it runs, and a joined one is listed a moment longer."""
    wait_until(lambda: flushers() == number)


def writer_of(partition, kind, **options):
    if kind == "arrow":
        return hg.RecordWriter(partition, NUMBERS, **options)
    return hg.RecordWriter(partition, serializer=kind, **options)


def record(kind, number):
    return numbers(1, number) if kind == "arrow" else number.to_bytes(8)


def reader_of(gate, kind):
    return hg.RecordReader(gate, serializer=kind)


def number(got, kind):
    return got.column(0)[0].as_py() if kind == "arrow" else int.from_bytes(got)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timeout", ["10ms", 0, "0ms"])
def test_an_idle_writer_has_sent_everything(link, kind, timeout):
    producer, consumer = link()
    partition = producer.create_result_partition(2, schema=NUMBERS if kind == "arrow" else None)
    readers = [reader_of(gate, kind) for gate in open_gates(partition, consumer)]
    writer = writer_of(partition, kind, buffer_timeout=timeout)
    for turn in range(6):
        writer.emit(record(kind, turn))
        # Emit nothing else before it has arrived.
        assert number(Task(next, readers[turn % 2]).result(), kind) == turn
    writer.finish()
    assert all(Task(list, reader).result() == [] for reader in readers)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timeout", [-1, "-1", -1.0, "1m"])
def test_a_writer_without_timeout_waits_for_a_reason(link, kind, timeout):
    producer, consumer = link(buffer_timeout=-1)
    partition = producer.create_result_partition(1, schema=NUMBERS if kind == "arrow" else None)
    (gate,) = open_gates(partition, consumer)
    writer = writer_of(partition, kind, buffer_timeout=timeout)
    reading = Task(next, reader_of(gate, kind))
    writer.emit(record(kind, 7))
    time.sleep(QUIET)
    assert reading.running
    assert flushers() == (1 if timeout == "1m" else 0)
    writer.flush()
    assert number(reading.result(), kind) == 7


@pytest.mark.parametrize(
    ("environment_says", "writer_says", "threads"),
    [(None, None, 1), (-1, None, 0), (0, None, 0), (-1, "50ms", 1), ("50ms", -1, 0), ("1s", 0, 0)],
)
def test_the_writer_wins_over_the_environment(environment, environment_says, writer_says, threads):
    env = environment(buffer_timeout=environment_says)
    wait_for_flushers(0)
    writers = [
        writer_of(env.create_result_partition(1), "arrow", buffer_timeout=writer_says)
        for _ in range(3)
    ]
    wait_for_flushers(threads)
    assert env.stats()["segments"]["held"] == 0
    for writer in writers:
        writer.finish()
    env.close()
    wait_for_flushers(0)


def test_a_writer_of_a_closed_environment_is_not_flushed(environment):
    env = environment()
    partition = env.create_result_partition(1)
    writer = writer_of(partition, "arrow", buffer_timeout="1ms")
    writer.emit(numbers(3))
    env.close()
    wait_for_flushers(0)
    with pytest.raises(hg.errors.ClosedError):
        writer.emit(numbers(3))
    with pytest.raises(hg.errors.ClosedError):
        writer_of(partition, "arrow")


def test_a_consumer_that_is_behind_gets_no_ever_smaller_pages(environment):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    gate = env.create_input_gate([partition.address(0)])
    writer = hg.RecordWriter(partition, buffer_timeout=0.001)
    for turn in range(100):
        writer.emit(numbers(1, turn))
        time.sleep(0.002)
    assert writer.stats().buffers == 1
    reader = hg.RecordReader(gate)
    assert Task(next, reader).result().num_rows + Task(next, reader).result().num_rows == 100


def test_pages_sent_by_time_keep_the_order_and_every_row(link):
    producer, consumer = link()
    partition = producer.create_result_partition(3, schema=NUMBERS)
    readers = [Task(drain, gate) for gate in open_gates(partition, consumer)]
    expected = [[], [], []]
    with hg.RecordWriter(
        partition, selector=lambda b: [n % 3 for n in b.column(0).to_pylist()], buffer_timeout=0.001
    ) as writer:
        for turn in range(3_000):
            if turn % 5:
                writer.emit(numbers(1 + turn % 4, turn))
                for n in range(turn, turn + 1 + turn % 4):
                    expected[n % 3].append(n)
            else:
                writer.broadcast_emit(numbers(1, turn))
                for rows in expected:
                    rows.append(turn)
    assert [reader.result().column(0).to_pylist() for reader in readers] == expected
    assert writer.stats().buffers > 6  # so some were sent by time


def test_spec_5_07_a_timeout_below_minus_one_is_refused(environment):
    partition = environment().create_result_partition(1)
    for wrong, said in {
        -2: "below the limit of -1",
        "-2": "below the limit of -1",
        "-1ms": "below the limit of -1",
        -0.5: "neither 0 nor -1",
        0.0001: "below the limit of 1ms",
        "500us": "below the limit of 1ms",
        float("nan"): "not a duration",
        100: "above the limit of 1m",  # Flink's unit is ms, Headgate's seconds
        float("inf"): "not a duration",
        "never": "not a duration",
        True: "not a duration",
    }.items():
        for make in (
            lambda: environment(buffer_timeout=wrong),  # noqa: B023 - called at once
            lambda: hg.RecordWriter(partition, NUMBERS, buffer_timeout=wrong),  # noqa: B023
        ):
            with pytest.raises(hg.errors.OptionError, match=said) as caught:
                make()
            assert f"buffer_timeout={wrong!r}" in str(caught.value)
            assert "takes -1, 0, or 1ms to 1m" in str(caught.value)


def test_a_forked_child_has_no_flusher_and_may_make_its_own(environment):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    gate = env.create_input_gate([partition.address(0)])
    writer = writer_of(partition, "arrow", buffer_timeout="1ms")
    writer.emit(numbers(1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert flushers() == 0
            with pytest.raises(hg.errors.ForkError):
                writer.emit(numbers(1))
            with hg.ShuffleEnvironment() as own:
                mine = own.create_result_partition(1, schema=NUMBERS)
                reader = hg.RecordReader(own.create_input_gate([mine.address(0)]))
                other = writer_of(mine, "arrow", buffer_timeout="1ms")
                other.emit(numbers(4))
                assert next(reader).num_rows == 4
                wait_for_flushers(1)
            wait_for_flushers(0)
            del writer, partition, gate, env
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Task(next, hg.RecordReader(gate)).result().num_rows == 1
    assert flushers() == 1
