"""Connections are shared, dialed again after a failure, and dropped when the peer is silent (spec 9)."""

import contextlib
import pickle
import signal
import threading
import time
from pathlib import Path

import wire
from plane import NUMBERS, SECRET, Task, drain, fake_address, numbers, wait_until
from test_processes import Child

import headgate as hg


def sockets():
    """Return the number of sockets that this process has open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count


def test_spec_9_11_many_gates_that_connect_at_once_share_one_connection(environment):
    producer, consumer = environment(memory="32m"), environment(memory="32m")
    partition = producer.create_result_partition(100, schema=NUMBERS)
    address = partition.address(0)
    before = sockets()
    barrier = threading.Barrier(10)

    def connect(first):
        barrier.wait()
        indexes = range(first, first + 10)
        return consumer.create_input_gate([partition.address(i) for i in indexes])

    gates = [task.result() for task in [Task(connect, 10 * n) for n in range(10)]]
    readers = [Task(drain, gate) for gate in gates]
    with hg.RecordWriter(partition) as writer:
        for turn in range(100):
            writer.emit(numbers(1, turn))
    assert sum(reader.result().num_rows for reader in readers) == 100
    assert sockets() - before == 2, "one is dialed, one is accepted"
    assert address.port == partition.address(99).port


def end_of_nothing(link, channel):
    link.send_frames(wire.end(0, 0, 0, channel=channel, sequence=0))


class Twice(wire.Producer):
    """A fake producer that ends its first connection, and serves its second one."""

    def _serve(self):
        # 2: SHUT_RDWR
        second, self._part = self._part, lambda link, channel: link.shutdown(2)
        super()._serve()
        self._part = second
        super()._serve()


def test_spec_9_11_a_channel_after_a_failed_connection_dials_anew(environment):
    fake = Twice(SECRET, end_of_nothing)
    consumer = environment()
    address = fake_address(fake, schema=None)
    first = consumer.create_input_gate([address])
    error = Task(lambda: list(hg.RecordReader(first, serializer="bytes"))).error()
    assert isinstance(error, ConnectionError), repr(error)
    first.close()
    second = consumer.create_input_gate([address])
    assert Task(lambda: list(hg.RecordReader(second, serializer="bytes"))).result() == []
    consumer.close()
    fake.close()


class Crowded(wire.Producer):
    """A fake producer that closes three connections before their handshake, and serves the next one."""

    def _serve(self):
        for _ in range(3):
            sock, _ = self._listener.accept()
            sock.close()
        super()._serve()


def test_a_connection_that_is_closed_before_the_handshake_is_dialed_again(environment):
    fake = Crowded(SECRET, end_of_nothing)
    consumer = environment()
    gate = consumer.create_input_gate([fake_address(fake, schema=None)])
    assert Task(lambda: list(hg.RecordReader(gate, serializer="bytes"))).result() == []
    consumer.close()
    fake.close()


PRODUCE = """
env = environment(idle_timeout="2s")
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
writer = hg.RecordWriter(partition)
writer.emit(numbers(10))
writer.flush()
sys.stdin.readline()
writer.finish()
say(partition.wait_consumed(20))
"""

CONSUME = """
env = environment()
gate = env.create_input_gate([address])
for batch in hg.RecordReader(gate):
    say(batch.num_rows)
    signal.pause()
"""


def opened(child, environment, **options):
    address = pickle.loads(bytes.fromhex(child.line()))
    gate = environment(**options).create_input_gate([address])
    reader = hg.RecordReader(gate)
    assert next(reader).num_rows == 10
    return reader


def test_a_producer_that_stops_is_noticed_within_the_idle_timeout(environment):
    with Child(PRODUCE) as child:
        reader = opened(child, environment, idle_timeout="2s")
        begun = time.monotonic()
        child.process.send_signal(signal.SIGSTOP)
        error = Task(next, reader).error()
        assert isinstance(error, hg.errors.PeerLostError)
        assert "no sign of life" in str(error)
        assert 1.5 < time.monotonic() - begun < 15
        child.process.send_signal(signal.SIGCONT)


def test_a_stop_shorter_than_the_idle_timeout_is_no_loss(environment):
    with Child(PRODUCE) as child:
        reader = opened(child, environment, idle_timeout="8s")
        child.process.send_signal(signal.SIGSTOP)
        # Longer than the child's own timeout: it must not count its stop as this process's silence.
        time.sleep(2.5)
        child.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        child.process.stdin.write("\n")
        child.process.stdin.flush()
        assert Task(lambda: list(reader)).result() == []
        assert child.end()[1].split() == ["True"]


def test_a_consumer_that_stops_is_noticed_by_a_producer_with_nothing_to_send(environment):
    producer = environment(idle_timeout="2s")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    with Child(CONSUME, address=partition.address(0)) as child:
        writer.emit(numbers(3))
        writer.flush()
        assert child.line() == "3"
        child.process.send_signal(signal.SIGSTOP)
        error = Task(partition.wait_consumed).error()
        assert isinstance(error, hg.errors.PeerLostError)
        assert "no sign of life" in str(error)


def test_connections_without_records_stay_while_both_ends_live(environment):
    producer, consumer = environment(idle_timeout="2s"), environment(idle_timeout="2s")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = consumer.create_input_gate([partition.address(0)])
    reading = Task(drain, gate)
    wait_until(lambda: consumer.stats()["bytes_received"] > 0)
    before = consumer.stats()["bytes_received"]
    time.sleep(4)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(7))
    assert reading.result().num_rows == 7
    beats = consumer.stats()["bytes_received"] - before
    assert beats > 13 * 2, "both ends send heartbeats meanwhile"


def test_a_thread_that_holds_the_gil_is_not_silent(environment):
    # PyDLL calls libc without releasing the GIL, here for longer than the consumer's idle timeout.
    holds = "import ctypes; ctypes.PyDLL(None).usleep(3_000_000)"
    with Child(PRODUCE.replace("sys.stdin.readline()", holds)) as child:
        reader = opened(child, environment, idle_timeout="2s")
        assert Task(lambda: list(reader)).result(60) == []
