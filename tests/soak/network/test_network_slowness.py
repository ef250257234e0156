"""Slow links, slow peers and too few processors cost time and nothing else."""

import os
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, Task, assert_same, numbers, wait_until
from tests.faults.network import EXPECTED, Run
from tests.kit.faults import TO_CLIENT, TO_TARGET, Fault

import headgate as hg

__all__ = ["environment", "nothing_left"]

SLOW = {
    "a megabit per second": Fault("throttle", TO_CLIENT, rate=125_000),
    "credits of 200 bytes per second": Fault("throttle", TO_TARGET, rate=200),
    "rows 200 ms later": Fault("delay", TO_CLIENT, seconds=0.2),
    "credits 200 ms later": Fault("delay", TO_TARGET, seconds=0.2),
    "windows of 4 kB": Fault("small windows"),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("link", SLOW)
def test_a_slow_link_is_only_slow(environment, link):
    started = time.monotonic()
    with Run(environment, SLOW[link]) as run:
        assert_same(run.outcome(60), EXPECTED)
        print(f"{link}: {run.proxy.passed[TO_CLIENT] / (time.monotonic() - started):,.0f} B/s")


@pytest.mark.timeout(180)
def test_a_link_of_small_windows_that_is_slow_and_late(environment):
    with Run(environment, Fault("small windows")) as run:
        run.proxy.delay(0.02)
        run.proxy.throttle(200_000, TO_CLIENT)
        assert_same(run.outcome(60), EXPECTED)


#: Seconds of the load, which is 8 busy processes per processor.
STARVED_SECONDS = float(os.environ.get("HEADGATE_TEST_STARVED_SECONDS", "5"))


@pytest.mark.timeout(240)
def test_processes_that_get_hardly_any_processor_time_are_not_lost(environment):
    busy = "import os, time\nuntil = time.monotonic() + 600\nwhile time.monotonic() < until and os.getppid() == PARENT: pass"
    busy = busy.replace("PARENT", str(os.getpid()))
    command = [sys.executable, "-c", busy]
    load = [subprocess.Popen(command) for _ in range(8 * (os.cpu_count() or 1))]
    try:
        started, runs = time.monotonic(), 0
        while runs == 0 or time.monotonic() - started < STARVED_SECONDS:
            with Run(environment) as run:
                assert_same(run.outcome(60), EXPECTED)
            runs += 1
        print(f"{runs} runs beside {len(load)} busy processes")
    finally:
        for process in load:
            process.kill()
            process.wait()


CONSUMERS = 100
PER_CONSUMER = 40


@pytest.mark.timeout(180)
def test_one_slow_consumer_of_100_holds_no_other_one_up(environment):
    # A shuffle with one writer. The other consumers get all rows not queued behind the slow one's.
    producer = environment(memory="64m", segment_size="16k")
    consumer = environment(memory="64m", segment_size="16k")
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(CONSUMERS)]
    gates = [consumer.create_input_gate([each.address(0)]) for each in partitions]
    others_done = []

    def write(partition):
        with hg.RecordWriter(partition) as writer:
            for turn in range(PER_CONSUMER):
                writer.emit(numbers(2_000, 2_000 * turn))
        return partition.wait_consumed(120)

    def read(index):
        batches = []
        for batch in hg.RecordReader(gates[index]):
            batches.append(batch)
            if index == 0:  # the slow consumer reads on once all others are done
                wait_until(lambda: len(others_done) == CONSUMERS - 1, 100)
        others_done.append(index)
        return pa.Table.from_batches(batches, NUMBERS)

    reading = [Task(read, index) for index in range(CONSUMERS)]
    started = time.monotonic()
    writing = [Task(write, partition) for partition in partitions]
    expected = numbers(2_000 * PER_CONSUMER)
    for index in range(1, CONSUMERS):
        assert_same(reading[index].result(100), expected)
    print(f"{CONSUMERS - 1} others done after {time.monotonic() - started:.1f} s")
    assert_same(reading[0].result(), expected)
    assert others_done[-1] == 0
    assert all(task.result() for task in writing)
    for gate in gates:
        gate.close()


def test_a_subpartition_that_nobody_reads_leaves_the_pool_to_the_others(environment):
    producer, consumer = environment(memory="4m"), environment(memory="4m")
    stuck = producer.create_result_partition(1, schema=NUMBERS)
    flowing = producer.create_result_partition(1, schema=NUMBERS)

    def fill():
        with hg.RecordWriter(stuck) as writer:
            while True:
                writer.emit(numbers(10_000))

    filling = Task(fill)
    gate = consumer.create_input_gate([flowing.address(0)])

    def write():
        with hg.RecordWriter(flowing) as writer:
            for turn in range(200):
                writer.emit(numbers(5_000, 5_000 * turn))

    writing = Task(write)
    rows = sum(batch.num_rows for batch in Task(list, hg.RecordReader(gate)).result())
    assert rows == 1_000_000
    writing.result()
    gate.close()
    assert filling.running
    producer.abort("the test is over")
    assert isinstance(filling.error(), hg.HeadgateError)
