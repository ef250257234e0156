"""Exchanges between real processes: rows, killed peers, signals, exits."""

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import wire
from plane import NUMBERS, SECRET, Task, assert_same, drain, numbers

import headgate as hg

HERE = Path(__file__).parent


class Child:
    """A Python process that runs some code, which may use the name `address`.

    `command` precedes Python on the command line, to run it under another program.
    """

    def __init__(self, code, address=None, command=()):
        prelude = (
            "import sys, pickle, os, time, signal, threading\n"
            f"sys.path.insert(0, {str(HERE)!r})\n"
            "import headgate as hg, pyarrow as pa\n"
            "from plane import NUMBERS, SECRET, SMALL, numbers\n"
            f"address = pickle.loads({pickle.dumps(address)!r})\n"
            "def environment(**options):\n"
            "    return hg.ShuffleEnvironment(**{**SMALL, 'secret': SECRET, **options})\n"
            "def say(*words):\n"
            "    print(*words, flush=True)\n"
        )
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", prelude + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, timeout=20):
        return Task(self._read_line).result(timeout).strip()

    def _read_line(self):
        # By single bytes: what a buffered `readline` read ahead, `communicate` would miss.
        line = b""
        while (byte := os.read(self.process.stdout.fileno(), 1)) not in (b"", b"\n"):
            line += byte
        return line.decode()

    def end(self, timeout=20):
        """Wait for the exit; return its code, the rest of the output, and the errors."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
            pytest.fail(f"the child hangs\n{err}")
        return self.process.returncode, out, err

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


PRODUCE = """
env = environment()
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
with hg.RecordWriter(partition) as writer:
    for turn in range(50):
        writer.emit(numbers(1000, 1000 * turn))
say("written", partition.wait_consumed(20))
env.close()
"""

ENDLESS = """
env = environment()
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
writer = hg.RecordWriter(partition)
while True:
    writer.emit(numbers(1000))
"""

CONSUME = """
env = environment()
gate = env.create_input_gate([address])
rows = sum(batch.num_rows for batch in hg.RecordReader(gate))
say(rows)
env.close()
"""


def address_of(child):
    return pickle.loads(bytes.fromhex(child.line()))


def test_a_line_that_came_with_the_one_before_is_not_lost():
    with Child("say('one\\ntwo\\nthree')") as child:
        child.process.wait(20)
        assert [child.line(), child.line()] == ["one", "two"]
        assert child.end() == (0, "three\n", "")


def test_rows_from_another_process(environment):
    with Child(PRODUCE) as child:
        gate = environment().create_input_gate([address_of(child)])
        assert_same(Task(drain, gate).result(), numbers(50_000))
        gate.close()
        assert child.end() == (0, "written True\n", "")


def test_rows_to_another_process(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with Child(CONSUME, partition.address(0)) as child:
        with hg.RecordWriter(partition) as writer:
            for _ in range(50):
                writer.emit(numbers(1000))
        assert Task(partition.wait_consumed, 20).result()
        assert child.end() == (0, "50000\n", "")


def test_a_killed_producer_is_noticed_before_its_silence(environment):
    with Child(ENDLESS) as child:
        gate = environment().create_input_gate([address_of(child)])
        reader = hg.RecordReader(gate)
        next(reader)
        reading = Task(lambda: [batch.num_rows for batch in reader])
        time.sleep(0.2)
        child.process.send_signal(signal.SIGKILL)
        error = reading.error(5)  # the idle timeout alone would take 10 s
        assert isinstance(error, hg.errors.PeerLostError)
        assert "without a goodbye" in str(error) or "reset" in str(error)


def test_a_killed_producer_is_noticed_by_a_consumer_that_waits(environment):
    idle = ENDLESS.replace("while True:\n    writer.emit(numbers(1000))", "time.sleep(60)")
    with Child(idle) as child:
        gate = environment().create_input_gate([address_of(child)])
        reading = Task(drain, gate)
        time.sleep(0.3)
        child.process.send_signal(signal.SIGKILL)
        assert isinstance(reading.error(1), hg.errors.PeerLostError)


STALL = """
env = environment()
gate = env.create_input_gate([address])
reader = hg.RecordReader(gate)
next(reader)
say("reads")
time.sleep(60)
"""


@pytest.mark.parametrize("waits", [False, True], ids=["in emit", "in wait_consumed"])
def test_a_killed_consumer_is_the_error_of_its_producer(environment, waits):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)

    def produce():
        for _ in range(20 if waits else 10_000):
            writer.emit(numbers(10_000))
        writer.finish()
        partition.wait_consumed()

    with Child(STALL, partition.address(0)) as child:
        writing = Task(produce)
        assert child.line() == "reads"
        time.sleep(0.2)
        child.process.send_signal(signal.SIGKILL)
        error = writing.error(5)
        assert isinstance(error, hg.errors.PeerLostError)
        assert "consumer" in str(error)


def test_a_lost_consumer_that_is_waited_for_is_released(environment):
    producer = environment()
    partition = producer.create_result_partition(2, schema=NUMBERS, lost_consumer_timeout=math.inf)
    gate = environment().create_input_gate([partition.address(1)])
    writer = hg.RecordWriter(partition, selector=hg.BroadcastSelector())

    def produce():
        for turn in range(100):
            writer.emit(numbers(1000, 1000 * turn))
        writer.finish()
        return partition.wait_consumed(10)

    reading = Task(drain, gate)
    with Child(STALL, partition.address(0)) as child:
        writing = Task(produce)
        assert child.line() == "reads"
        child.process.send_signal(signal.SIGKILL)
        time.sleep(0.5)
        partition.release_subpartition(0)
        assert_same(reading.result(), numbers(100_000))
        assert writing.result() is True


def test_an_unexplained_loss_of_a_consumer_fails_the_partition(environment):
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS, lost_consumer_timeout=0.5)
    sock, _ = wire.consumer(partition.address(0), SECRET)
    with sock, hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5))
        writer.finish()
        sock.send_frames(wire.partition_request(partition.address(0), credit=9))
        assert len(wire.receive(sock, 100)) == 100
    # The consumer has all data, but its acknowledgement never arrives.
    assert partition.wait_consumed(0.2) is False
    with pytest.raises(hg.errors.PeerLostError, match="lost consumer"):
        partition.wait_consumed(10)


# Exits during traffic.

EXITS = {
    "normally": "",
    "sys.exit": "sys.exit(0)",
    "an exception": "raise SystemExit(0)",
    "os._exit": "os._exit(0)",
    "closed": "env.close(); other.close()",
}

TRAFFIC = """
env, other = environment(), environment()
partition = env.create_result_partition(2, schema=NUMBERS)
local, remote = partition.address(0), partition.address(1)
gates = [env.create_input_gate([local]), other.create_input_gate([remote])]
writer = hg.RecordWriter(partition)
def produce():
    while True:
        writer.emit(numbers(1000))
def consume(gate):
    for batch in hg.RecordReader(gate):
        pass
for call in ([produce], [consume, gates[0]], [consume, gates[1]]):
    threading.Thread(target=lambda c=call: c[0](*c[1:]), daemon=True).start()
while env.stats()["lent"]["bytes"] < 1_000_000:
    time.sleep(0.01)
say("traffic")
"""


def leave(code):
    """Run code that says "traffic" and exits, in 4 processes, because threads at an exit race."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(code)) for _ in range(4)]
        for child in children:
            assert child.line() == "traffic"
        for child in children:
            status, _, err = child.end(10)
            assert status == 0, err
            assert "panic" not in err


@pytest.mark.parametrize("how", EXITS)
def test_an_exit_in_traffic_does_not_hang(how):
    leave(TRAFFIC + EXITS[how])


def test_an_exit_with_batches_and_errors_still_held():
    code = """
env, other = environment(), environment()
partition = env.create_result_partition(1, schema=NUMBERS)
gate = other.create_input_gate([partition.address(0)])
with hg.RecordWriter(partition) as writer:
    writer.emit(numbers(1000))
reader = hg.RecordReader(gate)
batch = next(reader)
try:
    other.create_result_partition(10_000)
except hg.HeadgateError as e:
    error = e
say("held", batch.num_rows)
"""
    with Child(code) as child:
        assert child.end(10) == (0, "held 1000\n", "")


# Ctrl-C.

BLOCKED = {
    "emit": """
partition = env.create_result_partition(1, schema=NUMBERS)
writer = hg.RecordWriter(partition)
call = lambda: [writer.emit(numbers(10_000)) for _ in range(10_000)]
""",
    "emit bytes": """
partition = env.create_result_partition(1)
writer = hg.RecordWriter(partition, serializer="bytes")
call = lambda: writer.emit(bytes(50_000_000))
""",
    "next": """
partition = env.create_result_partition(1, schema=NUMBERS)
reader = hg.RecordReader(env.create_input_gate([partition.address(0)]))
call = lambda: next(reader)
""",
    "next remote": """
partition = env.create_result_partition(1, schema=NUMBERS)
other = environment()
reader = hg.RecordReader(other.create_input_gate([partition.address(0)]))
call = lambda: next(reader)
""",
    "next of buffers": """
partition = env.create_result_partition(1, schema=NUMBERS)
reader = hg.BufferReader(env.create_input_gate([partition.address(0)]))
call = lambda: next(reader)
""",
    "wait_consumed": """
partition = env.create_result_partition(1, schema=NUMBERS)
call = lambda: partition.wait_consumed()
""",
    "wait_consumed with a timeout": """
partition = env.create_result_partition(1, schema=NUMBERS)
call = lambda: partition.wait_consumed(60)
""",
}


@pytest.mark.parametrize("where", BLOCKED)
def test_ctrl_c_ends_a_blocked_call(where):
    code = (
        "env = environment(memory='2m')\n"
        + BLOCKED[where]
        + """
say("ready")
try:
    call()
except KeyboardInterrupt:
    say("interrupted")
    env.close()
"""
    )
    with Child(code) as child:
        assert child.line() == "ready"
        time.sleep(0.4)
        child.process.send_signal(signal.SIGINT)
        assert child.line(5) == "interrupted"
        status, _, err = child.end(10)
        assert status == 0, err
