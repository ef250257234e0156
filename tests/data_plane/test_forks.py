"""Forks while environments are busy: in the child they raise, and new ones work."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from plane import NUMBERS, SECRET, SMALL, Task, assert_same, drain, emit_all, exchange, numbers

import headgate as hg

ForkError = hg.errors.ForkError
#: Seconds that a child may run.
LIMIT = 10.0
#: `wait_for` returns it for a child that hung.
HANGS = "hangs"


class Open:
    """An environment with a writer, readers and a connection, all in use."""

    def __init__(self, environment):
        self.environment, self.other = environment(), environment()
        self.partition = self.environment.create_result_partition(2, schema=NUMBERS)
        self.writer = hg.RecordWriter(self.partition)
        self.gate = self.environment.create_input_gate([self.partition.address(0)])
        self.reader = hg.RecordReader(self.gate)
        self.buffers = hg.BufferReader(self.gate)
        remote = self.other.create_input_gate([self.partition.address(1)])
        self.reading = [Task(drain, self.gate), Task(drain, remote)]
        self.emitted = 0
        self.stop = False
        self.writing = Task(self._write)
        while self.emitted < 100:
            time.sleep(0.001)

    def _write(self):
        while not self.stop:
            self.writer.emit(numbers(1000, 1000 * self.emitted))
            self.emitted += 1
        self.writer.finish()

    def finish(self):
        """Assert that the parent is not affected: all rows arrive."""
        self.stop = True
        self.writing.result()
        rows = sum(task.result().num_rows for task in self.reading)
        self.reading.clear()  # the fixture outlives the test, and batches hold segments
        assert rows == 1000 * self.emitted


@pytest.fixture
def busy(environment):
    return Open(environment)


def in_child(call, *, fork=os.fork, leave=os._exit):
    """Run `call` in a forked child; its exception, if any, fails the test."""
    read, write = os.pipe()
    child = fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode()[:4000])
        os.close(write)
        leave(0)
    os.close(write)
    status = wait_for(child)
    text = os.read(read, 5000).decode()
    os.close(read)
    assert (status, text) == (0, "")


def wait_for(child, *, may_hang=False):
    """Return how a child ended. One that hangs is killed and fails the test, unless it may hang.

    A child may hang if no fork handler ran: another thread may have held a lock of Python or of malloc at the fork.
    """
    deadline = time.monotonic() + (3.0 if may_hang else LIMIT)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not may_hang:
        pytest.fail(f"the child hangs: not done after {LIMIT} s")
    return HANGS


USES = {
    "address": lambda o: o.environment.address,
    "create_result_partition": lambda o: o.environment.create_result_partition(1),
    "create_input_gate": lambda o: o.environment.create_input_gate(),
    "partition.address": lambda o: o.partition.address(0),
    "release_subpartition": lambda o: o.partition.release_subpartition(0),
    "wait_consumed": lambda o: o.partition.wait_consumed(),
    "partition.fail": lambda o: o.partition.fail("from the child"),
    "add_channel": lambda o: o.gate.add_channel(
        hg.ChannelAddress("127.0.0.1", 1, bytes(16), 0, bytes(16))
    ),
    "seal": lambda o: o.gate.seal(),
    "gate.fail": lambda o: o.gate.fail("from the child"),
    "RecordWriter": lambda o: hg.RecordWriter(o.partition, NUMBERS),
    "emit": lambda o: o.writer.emit(numbers(1)),
    "emit many": lambda o: o.writer.emit(numbers(100_000)),
    "broadcast_event": lambda o: o.writer.broadcast_event("e"),
    "flush": lambda o: o.writer.flush(),
    "finish": lambda o: o.writer.finish(),
    "writer.stats": lambda o: o.writer.stats(),
    "back_pressured_ns": lambda o: o.writer.back_pressured_ns(),
    "next": lambda o: next(o.reader),
    "next buffer": lambda o: next(o.buffers),
    "totals": lambda o: o.reader.totals(),
    "num_channels": lambda o: o.gate.num_channels,
    "is_released": lambda o: o.partition.is_released,
    "stats": lambda o: o.environment.stats(),
}


def test_the_parents_objects_err_at_once_in_the_child(busy):
    def use_all():
        signal.alarm(int(LIMIT))  # a hang ends the child
        wrong = []
        for name, use in USES.items():
            try:
                use(busy)
            except ForkError as error:
                if str(os.getpid()) not in str(error):
                    wrong.append(f"{name} without the process")
            else:
                wrong.append(name)
        assert not wrong, f"no ForkError from {wrong}"

    in_child(use_all)
    busy.finish()


def test_a_child_of_which_python_was_not_told_errs_too(environment):
    fork = getattr(ctypes.PyDLL(None), "_Fork", None)  # _Fork runs no fork handlers
    if fork is None:
        pytest.skip("needs glibc 2.34")
    parent = environment()
    partition = parent.create_result_partition(1)

    def use():
        for call in (parent.create_input_gate, lambda: partition.address(0)):
            with pytest.raises(ForkError):
                call()

    in_child(use, fork=fork)
    assert partition.address(0)


#: A parent that is process 1, and a child that is process 1 of another PID namespace.
SAME_NUMBER = f"""
import ctypes, os, signal
import headgate as hg
environment = hg.ShuffleEnvironment(secret={SECRET!r}, **{SMALL!r})
partition = environment.create_result_partition(1)
partition.address(0)  # starts the I/O thread
new_pid_namespace = 0x20000000
assert ctypes.CDLL(None).unshare(new_pid_namespace) == 0
child = os.fork()
assert os.getpid() == 1
if child == 0:
    signal.alarm({int(LIMIT)})  # a hang ends the child
    try:
        partition.address(0)
    except hg.errors.ForkError:
        os._exit(7)
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
environment.create_result_partition(1)
"""


def test_a_child_with_its_parents_number_errs_too():
    new = next((new for new in NEW_PID_NAMESPACE if starts([*new, "true"])), None)
    if new is None:
        pytest.skip("this machine makes no PID namespaces")
    done = starts([*new, sys.executable, "-c", SAME_NUMBER])
    assert done, "the child took itself for its parent"


#: Commands that run another one as process 1, as root and as any user.
NEW_PID_NAMESPACE = [
    ["unshare", "--pid", "--fork", "--kill-child"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
]


def starts(command):
    try:
        return subprocess.run(command, check=False, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


def test_closing_in_the_child_does_nothing(busy):
    def close_all():
        busy.reader.close()
        busy.gate.close()
        busy.partition.close()
        busy.environment.abort("from the child")
        busy.environment.close()
        busy.environment.close()

    in_child(close_all)
    busy.finish()


def test_a_child_makes_its_own(busy):
    def exchange_there():
        producer = hg.ShuffleEnvironment(secret=SECRET, **SMALL)
        consumer = hg.ShuffleEnvironment(secret=SECRET, **SMALL)
        for pair in ((producer, producer), (producer, consumer)):
            [got] = exchange(*pair, emit_all(numbers(1000)), schema=NUMBERS)
            assert_same(got, numbers(1000))
        consumer.close()
        producer.close()

    for _ in range(3):
        in_child(exchange_there)
    busy.finish()


def test_the_error_in_a_grandchild_names_the_process_of_the_environment(busy):
    def make_and_fork():
        with hg.ShuffleEnvironment(secret=SECRET, **SMALL) as own:
            owner = os.getpid()

            def use_it():
                with pytest.raises(ForkError) as caught:
                    own.create_result_partition(1)
                text = str(caught.value)
                assert str(owner) in text
                assert str(os.getpid()) in text

            in_child(use_it)
            own.create_result_partition(1)

    in_child(make_and_fork)
    busy.finish()


def test_a_child_reads_from_its_parent(busy, environment):
    parent = environment()
    partition = parent.create_result_partition(1, schema=NUMBERS)
    address = partition.address(0)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))

    def read():
        with hg.ShuffleEnvironment(secret=SECRET, **SMALL) as own:
            gate = own.create_input_gate([address])
            assert_same(Task(drain, gate).result(), numbers(1000))

    in_child(read)
    assert Task(partition.wait_consumed, 5).result()
    busy.finish()


def test_children_that_drop_everything_and_leave(busy):
    def drop():
        import gc

        busy.__dict__.clear()
        gc.collect()

    for _ in range(5):
        in_child(drop)
    busy.finish()


@pytest.mark.parametrize("turns", [30])
def test_many_forks_in_traffic(busy, turns):
    for _ in range(turns):
        in_child(lambda: None)
    busy.finish()


def test_multiprocessing_by_fork_in_traffic(busy):
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map_async(abs, range(-10, 0)).get(LIMIT) == list(range(10, 0, -1))
    busy.finish()


def test_a_normal_exit_of_a_child_does_not_hang():
    from pathlib import Path

    code = f"""
import sys, os, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import headgate as hg
from plane import NUMBERS, SMALL, SECRET, numbers
one = hg.ShuffleEnvironment(secret=SECRET, **SMALL)
two = hg.ShuffleEnvironment(secret=SECRET, **SMALL)
partition = one.create_result_partition(1, schema=NUMBERS)
gate = two.create_input_gate([partition.address(0)])
writer = hg.RecordWriter(partition)
reader = hg.RecordReader(gate)
threading.Thread(target=lambda: [writer.emit(numbers(1000)) for _ in iter(int, 1)], daemon=True).start()
next(reader)
child = os.fork()
if child == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert next(reader).num_rows > 0
print("fine", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
