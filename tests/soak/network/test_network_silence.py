"""Peers that are stopped or unreachable, and links that pass bytes in one direction only."""

import os
import signal
import time

import pytest
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, Task, assert_same, drain, numbers, wait_until
from tests.faults.network import CONSUME, ENDLESS, EXPECTED, PRODUCE, SEEDS, Child, Run, address_of
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import TO_CLIENT, TO_TARGET

import headgate as hg

__all__ = ["environment", "nothing_left"]

errors = hg.errors
#: Seconds within which a peer must acknowledge bytes, and must finish the handshake.
USER_TIMEOUT, HANDSHAKE_DEADLINE = 10.0, 12.0
#: Seconds of a stop that must not count as a loss.
STOP = 5.0


@pytest.mark.timeout(240)
def test_a_producer_that_is_stopped_for_5_seconds_is_not_lost(environment):
    for _ in range(max(SEEDS // 40, 1)):
        with Child(PRODUCE) as child:
            gate = environment().create_input_gate([address_of(child)])
            reader = hg.RecordReader(gate)
            rows = [next(reader).num_rows]
            child.process.send_signal(signal.SIGSTOP)
            reading = Task(lambda r=reader, n=rows: n.extend(b.num_rows for b in r))
            time.sleep(STOP)
            child.process.send_signal(signal.SIGCONT)
            reading.result()
            assert sum(rows) == 50_000
            gate.close()
            assert child.end() == (0, "written True\n", "")


@pytest.mark.timeout(240)
def test_a_consumer_that_is_stopped_for_5_seconds_is_not_lost(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with Child(CONSUME, partition.address(0)) as child:
        writer = hg.RecordWriter(partition)
        writer.emit(numbers(20_000))
        child.process.send_signal(signal.SIGSTOP)

        def produce():
            for _ in range(50):
                writer.emit(numbers(20_000))
            writer.finish()
            return partition.wait_consumed(30)

        writing = Task(produce)
        time.sleep(STOP)
        assert writing.running, "the producer did not wait for its consumer"
        child.process.send_signal(signal.SIGCONT)
        assert writing.result(40) is True
        assert child.end() == (0, f"{51 * 20_000}\n", "")


@pytest.mark.timeout(180)
def test_a_producer_that_is_stopped_for_good_is_lost_after_the_idle_timeout(environment):
    # The kernel acknowledges bytes for a stopped process, so only missing heartbeats show the loss.
    with Child(ENDLESS) as child:
        gate = environment(idle_timeout="3s").create_input_gate([address_of(child)])
        reader = hg.RecordReader(gate)
        next(reader)
        child.process.send_signal(signal.SIGSTOP)
        reading = Task(lambda: [batch.num_rows for batch in reader])
        error = reading.error(3.0 + 10)
        assert isinstance(error, errors.PeerLostError)
        assert "no sign of life" in str(error)
        child.kill()
        gate.close()


def test_a_stalled_link_that_comes_back_costs_nothing(environment):
    with Run(environment) as run:
        task = Task(run.outcome)
        wait_until(lambda: run.proxy.passed[TO_CLIENT] > 50_000)
        run.proxy.stall()
        time.sleep(2)
        run.proxy.resume()
        assert_same(task.result(), EXPECTED)


@pytest.mark.parametrize("direction", [TO_CLIENT, TO_TARGET], ids=["rows", "credits"])
def test_a_link_that_is_stalled_one_way_comes_back(environment, direction):
    with Run(environment) as run:
        task = Task(run.outcome)
        wait_until(lambda: run.proxy.passed[TO_CLIENT] > 50_000)
        run.proxy.stall(direction)
        time.sleep(2)
        run.proxy.resume()
        assert_same(task.result(), EXPECTED)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("stopped", ["link", "rows", "credits"])
def test_a_silent_link_blocks_both_sides_until_it_is_cut(environment, stopped):
    # The proxy's kernel acknowledges, so no timer expires here. On Spark heartbeats end the wait.
    producer, consumer = environment(memory="1m"), environment(memory="1m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    address = partition.address(0)
    with FaultProxy(address.host, address.port) as proxy:
        gate = consumer.create_input_gate([proxy.address(address)])
        reading = Task(drain, gate)
        writer = hg.RecordWriter(partition)

        def produce():
            while True:
                writer.emit(numbers(10_000))

        writing = Task(produce)
        wait_until(lambda: proxy.passed[TO_CLIENT] > 200_000)
        ways = {"link": (TO_CLIENT, TO_TARGET), "rows": [TO_CLIENT], "credits": [TO_TARGET]}
        for direction in ways[stopped]:
            proxy.black_hole(direction)
        time.sleep(3)
        assert writing.running
        assert reading.running
        proxy.cut()
        read, wrote = reading.error(10), writing.error(10)
        assert isinstance(read, errors.PeerLostError)
        assert isinstance(wrote, errors.PeerLostError)
        assert str(proxy.port) in str(read), "the peer is not named"
        gate.close()


def test_a_link_that_is_silent_from_the_start_ends_with_the_deadline_of_the_handshake(environment):
    partition = environment().create_result_partition(2, schema=NUMBERS)
    addresses = [partition.address(number) for number in range(2)]
    with (
        FaultProxy(addresses[0].host, addresses[0].port) as stalled,
        FaultProxy(addresses[1].host, addresses[1].port) as black_hole,
    ):
        stalled.stall()
        black_hole.black_hole()
        waiting = []
        for proxy, address in zip((stalled, black_hole), addresses, strict=True):
            gate = environment().create_input_gate([proxy.address(address)])
            waiting.append((proxy, gate, Task(drain, gate)))
        for proxy, gate, reading in waiting:
            error = reading.error(HANDSHAKE_DEADLINE + 10)
            assert isinstance(error, errors.HandshakeError)
            assert str(proxy.port) in str(error), "the peer is not named"
            gate.close()


#: Seconds for which a function holds the GIL. The full test uses 60.
LOCK_SECONDS = float(os.environ.get("HEADGATE_TEST_GIL_SECONDS", "5"))

#: A producer that holds the GIL: PyDLL does not release it around calls of libc.
HOLDS_THE_LOCK = """
import ctypes
env = environment()
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
writer = hg.RecordWriter(partition)
writer.emit(numbers(20_000))
writer.flush()
say("holds")
ctypes.PyDLL(None).usleep.argtypes = [ctypes.c_uint]
until = time.monotonic() + {seconds}
while time.monotonic() < until:
    ctypes.PyDLL(None).usleep(900_000)
writer.emit(numbers(20_000, 20_000))
writer.finish()
say("written", partition.wait_consumed(30))
env.close()
"""


@pytest.mark.timeout(240)
def test_a_producer_whose_function_holds_pythons_lock_is_alive(environment):
    code = HOLDS_THE_LOCK.replace("{seconds}", str(LOCK_SECONDS))
    with Child(code) as child:
        address = address_of(child)
        assert child.line() == "holds"
        # The consumer connects and gets rows while the producer's function holds the GIL.
        gate = environment().create_input_gate([address])
        started = time.monotonic()
        reader = hg.RecordReader(gate)
        first = Task(next, reader).result(LOCK_SECONDS)
        assert time.monotonic() - started < LOCK_SECONDS
        rest = Task(lambda: sum(batch.num_rows for batch in reader)).result(LOCK_SECONDS + 40)
        assert first.num_rows + rest == 40_000
        del first
        gate.close()
        assert child.end(60)[:2] == (0, "written True\n")
