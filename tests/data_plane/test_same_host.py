"""Processes of one host read pages in place, also after a close or the death of a peer."""

import gc
import os
import pickle
import signal
import socket
from pathlib import Path

import pyarrow as pa
import pytest
import wire
from plane import NUMBERS, Task, drain, numbers, wait_until
from test_processes import Child

import headgate as hg

MIB = 1 << 20


def lent(environment):
    return environment.stats()["lent"]


def links(environment):
    return environment.stats()["connections"]


@pytest.fixture
def pair(environment):
    """Make two environments of one host, with few segments."""
    return environment(same_host_link="auto"), environment(same_host_link="auto")


def write(partition, batches):
    with hg.RecordWriter(partition) as writer:
        for batch in batches:
            writer.emit(batch)


def reading(consumer, partition):
    return hg.RecordReader(consumer.create_input_gate([partition.address(0)]))


def test_pages_are_lent_and_come_back_as_they_are_dropped(pair):
    producer, consumer = pair
    partition = producer.create_result_partition(1, schema=NUMBERS)
    reader = reading(consumer, partition)
    writing = Task(write, partition, [numbers(100_000)])
    first, second = (Task(next, reader).result() for _ in range(2))
    assert links(producer) == links(consumer) == {"tcp": 0, "same_host": 1}
    assert lent(producer)["now"] >= 2
    del first
    rest = Task(list, reader).result()
    writing.result()
    rows = second.num_rows + sum(batch.num_rows for batch in rest)
    assert rows < 100_000
    assert lent(producer)["bytes"] >= 8 * rows
    assert producer.stats()["bytes_sent"] < 20_000, "no page goes through the socket"
    del second, rest
    wait_until(lambda: lent(producer)["now"] == 0)
    segments = producer.stats()["segments"]
    assert (segments["held"], segments["pinned"]) == (0, 0)


def test_a_reader_that_keeps_everything_stalls_no_exchange(pair):
    producer, consumer = pair
    partition = producer.create_result_partition(1, schema=NUMBERS)
    reader = reading(consumer, partition)
    batches = [numbers(50_000, 50_000 * turn) for turn in range(100)]  # 40 MB, pools of 8 MiB
    writing = Task(write, partition, batches)
    kept = Task(list, reader).result()
    writing.result()
    assert pa.Table.from_batches(kept)["n"].equals(pa.Table.from_batches(batches)["n"])
    segments = producer.stats()["segments"]
    assert 0 < lent(producer)["now"] <= segments["total"] // 2
    assert producer.stats()["bytes_sent"] > 10 * MIB, "buffers that cannot be lent are sent"
    assert consumer.stats()["copies"]["pool_low"] > 10 * MIB
    # Another exchange still gets segments.
    other = producer.create_result_partition(1, schema=NUMBERS)
    again = Task(drain, consumer.create_input_gate([other.address(0)]))
    write(other, batches[:4])
    assert again.result().num_rows == 200_000


def test_batches_of_a_closed_reader_stay_lent_until_they_are_dropped(pair):
    producer, consumer = pair
    partition = producer.create_result_partition(1, schema=NUMBERS)
    reader = reading(consumer, partition)
    write(partition, [numbers(20_000)])
    kept = Task(list, reader).result()
    del reader
    consumer.close()
    wait_until(lambda: links(producer)["same_host"] == 0)
    assert lent(producer)["now"] >= 2
    # Segments on loan are not reused, however much is written.
    other = producer.create_result_partition(1, schema=NUMBERS)
    again = Task(drain, producer.create_input_gate([other.address(0)]))
    write(other, [pa.record_batch({"n": pa.array([7] * 500_000)})] * 4)
    assert again.result().num_rows == 2_000_000
    assert pa.Table.from_batches(kept)["n"].to_pylist() == list(range(20_000))
    last = kept.pop()
    kept.clear()
    gc.collect()
    assert lent(producer)["now"] >= 2, "with the last of the batches"
    del last
    wait_until(lambda: lent(producer)["now"] == 0)


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_either_side_can_do_without(environment, who):
    off, auto = environment(same_host_link="off"), environment(same_host_link="auto")
    producer, consumer = (off, auto) if who == "producer" else (auto, off)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    table = Task(drain, consumer.create_input_gate([partition.address(0)]))
    write(partition, [numbers(20_000)])
    assert table.result().num_rows == 20_000
    assert links(producer) == links(consumer) == {"tcp": 1, "same_host": 0}
    assert lent(producer)["buffers"] == 0


def test_another_user_gets_nothing(pair):
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    producer, consumer = pair
    partition = producer.create_result_partition(1, schema=NUMBERS)
    address = partition.address(0)
    reader = reading(consumer, partition)
    writing = Task(write, partition, [numbers(20_000)])
    Task(next, reader).result()
    memory = [path for path in Path("/proc/self/fd").iterdir() if is_memory(path)]
    assert memory, "the text to search for is not empty"
    owner = os.getpid()
    stranger = os.fork()
    if stranger == 0:
        os.setuid(65534)
        got = 0
        for path in memory:
            try:
                os.open(f"/proc/{owner}/fd/{path.name}", os.O_RDONLY)
            except OSError:
                continue
            got |= 1
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(wire.near(address))
            try:
                sock.sendall(wire.hello())
                got |= 2 * bool(sock.recv(1))
            except ConnectionError:
                pass
        os._exit(got)
    assert os.waitstatus_to_exitcode(os.waitpid(stranger, 0)[1]) == 0
    Task(list, reader).result()
    writing.result()


def is_memory(path):
    try:
        return str(path.readlink()).startswith("/memfd:headgate")
    except OSError:
        return False


def test_a_name_that_another_user_holds_is_passed_by(environment):
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    producer, consumer = environment(same_host_link="off"), environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    address = partition.address(0)
    ready, done = os.pipe(), os.pipe()
    squatter = os.fork()
    if squatter == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(wire.near(address))
            taken.listen()
            os.write(ready[1], b"1")
            os.close(done[1])
            os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        table = Task(drain, consumer.create_input_gate([address]))
        write(partition, [numbers(20_000)])
        assert table.result().num_rows == 20_000
        assert links(consumer) == {"tcp": 1, "same_host": 0}
    finally:
        for end in (*ready, *done):
            os.close(end)
        os.waitpid(squatter, 0)


PRODUCE = """
env = environment()
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
writer = hg.RecordWriter(partition)
writer.emit(numbers(1_000_000))
writer.finish()
"""


def test_pages_of_a_killed_writer_stay_readable(environment):
    with Child(PRODUCE) as child:
        consumer = environment(same_host_link="auto")
        address = pickle.loads(bytes.fromhex(child.line()))
        reader = hg.RecordReader(consumer.create_input_gate([address]))
        kept = [Task(next, reader).result() for _ in range(3)]
        assert links(consumer)["same_host"] == 1
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        error = Task(list, reader).error()
        assert isinstance(error, hg.errors.PeerLostError)
    rows = pa.Table.from_batches(kept)["n"].to_pylist()
    assert rows == list(range(len(rows)))


CONSUME = """
env = environment()
reader = hg.RecordReader(env.create_input_gate([address]))
kept = [next(reader) for _ in range(3)]
say(len(kept))
signal.pause()
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["killed", "stopped first"])
def test_buffers_lent_to_a_killed_reader_return(environment, stopped):
    producer = environment(same_host_link="auto", idle_timeout="2s")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with Child(CONSUME, address=partition.address(0)) as child:
        writing = Task(write, partition, [numbers(1_000_000)])
        assert child.line() == "3"
        wait_until(lambda: lent(producer)["now"] >= 3)
        if stopped:
            child.process.send_signal(signal.SIGSTOP)
            writing.error()
            # The connection is lost, but the stopped process could still read.
            wait_until(lambda: links(producer)["same_host"] == 0)
            assert lent(producer)["now"] >= 3
        child.process.send_signal(signal.SIGKILL)
        wait_until(lambda: lent(producer)["now"] == 0)
        if not stopped:
            writing.error()
