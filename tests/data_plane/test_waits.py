"""The time of waits: for files, and for connections that take no more."""

from plane import NUMBERS, Task, assert_same, drain, numbers, wait_until
from tests.faults.fault import TO_CLIENT, Fault
from tests.faults.fault_proxy import FaultProxy
from tests.faults.network import EXPECTED, Run

import headgate as hg


def back_pressured_ms(run):
    """Return the time in which the writer of a run waited for a segment."""
    return run.producer.stats()["metrics"]["task"]["accumulateBackPressuredTimeMs"]


def test_an_environment_without_files_and_connections_waits_for_none(environment):
    env = environment(memory="4m")
    partition = env.create_result_partition(1, schema=NUMBERS)
    gate = env.create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))
    assert_same(Task(drain, gate).result(), numbers(1000))
    assert env.waits() == (0, 0)


def test_a_connection_that_takes_no_more_is_waited_for(environment):
    # The consumer gives credit for more bytes than the kernel buffers.
    options = {"memory": "16m", "segment_size": "256k", "floating_buffers_per_gate": 40}
    producer, consumer = environment(**options), environment(**options)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    address = partition.address(0)
    proxy = FaultProxy(address.host, address.port, Fault("small windows"))
    proxy.throttle(8_000_000, TO_CLIENT)
    gate = consumer.create_input_gate([proxy.address(address)])

    def write():
        with hg.RecordWriter(partition) as writer:
            for turn in range(60):
                writer.emit(numbers(20_000, 20_000 * turn))
        partition.wait_consumed(60)

    writing = Task(write)
    assert_same(Task(drain, gate).result(60), numbers(1_200_000))
    writing.result(60)
    assert producer.waits().link_ns > 1_000_000
    assert consumer.waits().link_ns < producer.waits().link_ns
    gate.close()
    proxy.close()


def test_a_consumer_that_does_not_read_is_no_wait_for_its_connection(environment):
    with Run(environment) as run:
        writing = Task(run.write)
        gate = run.consumer.create_input_gate([run.address])
        # The pool is full, as no credits come. What was sent has long arrived.
        wait_until(lambda: back_pressured_ms(run) > 300)
        waits = run.producer.waits()
        assert waits.link_ns < 500_000 * back_pressured_ms(run)
        assert Task(drain, gate).result().num_rows == EXPECTED.num_rows
        run.partition.release_subpartition(1)
        writing.result()
        gate.close()


def test_files_are_waited_for_where_they_are_written_and_read(environment, tmp_path):
    env = environment(memory="4m", temp_directories=tmp_path)
    partition = env.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        for turn in range(200):
            writer.emit(numbers(10_000, 10_000 * turn))
    written = env.waits()
    assert written.disk_ns > 0
    (kept,) = partition.keep(tmp_path / "kept")
    other = environment(memory="4m")
    gate = other.create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_kept_channel(kept)
    gate.seal()
    assert_same(Task(drain, gate, schema=NUMBERS).result(), numbers(2_000_000))
    assert other.waits().disk_ns > 0
    assert written.link_ns == other.waits().link_ns == 0
