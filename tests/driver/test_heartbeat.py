"""Heartbeats: a silent process is lost within the timeout; a busy or slow one is not."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.driver.actors import EXCHANGE, Theatre
from tests.driver.test_server import Side
from tests.driver.test_source_readers import Play
from tests.faults import facts
from tests.faults.patience import wait_until

from headgate.control.connection import WorkerConnection
from headgate.control.heartbeat import Heartbeats
from headgate.control.place import Place
from headgate.errors import CoordinatorError
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing
from headgate.spark.tasks.control import Control, Counts
from headgate.spark.wire.channel import MESSAGES, control_key
from headgate.spark.wire.messages import Message

SECRET = b"s" * 32
#: Seconds; the smallest value of the option, which keeps the tests short.
TIMEOUT = 2.0

WORKER = """
import ctypes, sys
from headgate.spark.tasks.control import Control, Counts
from headgate.control.place import Place
port, index, timeout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with Control(Place("127.0.0.1", port, b"x" * 16, b"s" * 32, 30.0, timeout)) as control:
    fields = {"stage": 1, "partition": index, "attempt": index + 70, "index": index}
    control.send("CONSUMER", fields)
    start = control.receive()
    control.bind(start.run, start.epoch)
    control.listen(lambda message: None, Counts())
    for line in sys.stdin:
        if line == "hold\\n":
            ctypes.PyDLL(None).sleep(6)
            print("held", flush=True)
        if line == "wait\\n":
            print(control.await_message("ABORT", "EPOCH_ENDED", timeout=30)["summary"], flush=True)
"""

DRIVER = """
import sys
sys.path[:0] = sys.argv[1:]
from tests.driver.test_heartbeat import serve
with serve(timeout=2.0) as (server, side):
    print(server.port, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def serve(timeout=TIMEOUT, partitions=2):
    """Serve a coordinator on a socket, without Spark."""
    side = Side()
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    server = Server("127.0.0.1", keys.get, lambda _: side, Retries(), Timing())
    server.coordinator.exchanges[EXCHANGE] = ExchangeFacts(partitions, timeout)
    server.start()
    try:
        yield server, side
    finally:
        server.stop()


@contextlib.contextmanager
def process(script, *args):
    """Run a Python process; resume and kill it at the end."""
    command = [sys.executable, "-c", script, *map(str, args)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, **pipes) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def say(child, word):
    child.stdin.write(f"{word}\n")
    child.stdin.flush()


def started(server, side, count=2):
    """Wait until the run has started and all its workers send heartbeats; return the run."""
    wait_until(lambda: side.submitted, "runs to submit", 30)
    wait_until(lambda: len(beating(server)) == count, "heartbeats", 30)
    (run,) = side.submitted
    server.post(run.epochs.flow)
    wait_until(lambda: run.state.name == "FLOWING", "consumers to start", 30)
    return run


def beating(server):
    return [c for c in list(server._connections.values()) if c.target is not None]


def beat_threads():
    return facts.native_threads().count("headgate-beat")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def no_thread_and_no_file_is_left():
    before, files = beat_threads(), open_files()
    yield
    wait_until(lambda: beat_threads() == before, "threads that beat")
    wait_until(lambda: open_files() <= files, "open files")


def test_a_stopped_worker_is_lost_by_name_and_stays_lost():
    with (
        serve() as (server, side),
        process(WORKER, server.port, 0, 60) as stopped,
        process(WORKER, server.port, 1, 60) as other,
    ):
        run = started(server, side)
        say(other, "wait")
        stopped.send_signal(signal.SIGSTOP)
        wait_until(lambda: side.epochs, "epochs that end", 30)
        ((ended, epoch, cause),) = side.epochs
        assert (ended, epoch) == (run, 0)
        assert cause.code == "HG-3001"
        assert cause.summary.startswith("no heartbeat for 2 s from 127.0.0.1: a consumer")
        assert "consumer of partition 0, stage 1, task 70" in cause.summary
        assert other.stdout.readline() == cause.summary + "\n"
        ((member, reason),) = side.killed
        assert (member.attempt, reason) == (70, cause.summary)
        assert not side.asked
        # A lost worker stays lost after it resumes.
        say(stopped, "wait")
        stopped.send_signal(signal.SIGCONT)
        assert "cannot be reached" in stopped.stdout.readline()
        assert [m.attempt for m in server.coordinator.members.values()] in ([71], [])


@pytest.mark.soak
def test_a_worker_that_is_stopped_for_a_while_or_holds_pythons_lock_is_not_lost():
    with (
        serve(timeout=4.0) as (server, side),
        process(WORKER, server.port, 0, 60) as stopped,
        process(WORKER, server.port, 1, 60) as busy,
    ):
        run = started(server, side)
        say(busy, "hold")
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(2)
        stopped.send_signal(signal.SIGCONT)
        assert busy.stdout.readline() == "held\n"
        assert (side.results, side.killed, run.cause) == ([], [], None)
        assert len(beating(server)) == 2


@pytest.mark.soak
def test_a_driver_whose_program_holds_pythons_lock_is_not_lost():
    with (
        serve(timeout=60.0) as (server, side),
        process(WORKER, server.port, 0, TIMEOUT) as one,
        process(WORKER, server.port, 1, TIMEOUT) as other,
    ):
        run = started(server, side)
        ctypes.PyDLL(None).sleep(5)
        assert len(beating(server)) == 2
        server.post(run.cancel)
        for worker in (one, other):
            say(worker, "wait")
            assert worker.stdout.readline() == "the run was cancelled\n"


def test_a_silent_driver_fails_its_workers():
    with process(DRIVER, *sys.path) as driver:
        port = int(driver.stdout.readline())
        place = Place("127.0.0.1", port, EXCHANGE, SECRET, 30.0, TIMEOUT)
        with Control(place) as waiting, Control(place) as listening:
            for index, control in enumerate((waiting, listening)):
                fields = {"stage": 1, "partition": index, "attempt": index, "index": index}
                control.send("CONSUMER", fields)
                control._start_heartbeats()
            heard = []
            listening.listen(heard.append, Counts())
            driver.send_signal(signal.SIGSTOP)
            with pytest.raises(
                CoordinatorError, match="no heartbeat from the driver for 2"
            ) as said:
                waiting.receive()
            assert f"127.0.0.1:{port}" in str(said.value)
            assert "heartbeat_timeout=2s" in str(said.value)
            told = listening.await_message("ABORT", timeout=30)
            assert told["code"] == "HG-3008"
            assert "no heartbeat from the driver" in told["summary"]
            assert [message.kind for message in heard] == ["ABORT"]


def test_a_worker_that_never_sends_a_heartbeat_is_lost_too():
    with serve() as (server, side):
        connection = WorkerConnection(Place("127.0.0.1", server.port, EXCHANGE, SECRET), MESSAGES)
        with connection.sock:
            fields = {"stage": 1, "partition": 0, "attempt": 7, "index": 0}
            connection.send(Message("CONSUMER", fields=fields))
            wait_until(lambda: server.coordinator.members, "members", 30)
            wait_until(lambda: not server._connections, "connections", 30)
            wait_until(lambda: side.killed, "kills that are asked for", 30)
            assert [member.attempt for member, _ in side.killed] == [7]
            with pytest.raises(CoordinatorError, match="cannot be reached"):
                connection.receive()


def test_heartbeats_of_an_unknown_worker_are_refused():
    with serve() as (server, side):
        place = Place("127.0.0.1", server.port, EXCHANGE, SECRET)
        for kind in ("HEARTBEAT", "CONSUMER"):
            connection = WorkerConnection(place, MESSAGES)
            with connection.sock:
                if kind == "CONSUMER":
                    fields = {"stage": 1, "partition": 0, "attempt": 7, "index": 0}
                    connection.send(Message("CONSUMER", fields=fields))
                connection.send(Message("HEARTBEAT", fields={"control": "00" * 16}))
                with pytest.raises(CoordinatorError, match="closed the connection"):
                    connection.receive()
        assert not side.killed
        wait_until(lambda: not server._connections, "connections")
        assert not server._tokens


def test_a_forked_child_leaves_its_parents_heartbeats_alone():
    heartbeats = Heartbeats()
    ours, theirs = socket.socketpair()
    target = heartbeats.monitor(ours, TIMEOUT)
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            heartbeats._native.silence(target)
            status = 2
        heartbeats.close()
        del heartbeats
        os._exit(0 if status == 1 else status)
    assert os.waitpid(child, 0)[1] == 0
    with theirs:
        # The parent's thread still sends heartbeats after the child has ended.
        assert theirs.recv(100)
        for _ in range(2):
            assert theirs.recv(1) == b"\0"
    heartbeats.close()
    with pytest.raises(OSError, match="closed"):
        heartbeats.unmonitor(target)


def test_a_silent_consumer_that_waits_for_its_run_makes_room_for_the_next_attempt():
    theatre = Theatre()
    waiting = theatre.consumer(0)
    kills = silent(theatre, waiting)
    assert [member.index for member in kills] == [0]
    theatre.consumer(0)
    theatre.consumer(1)
    theatre.stage(1, 2)
    (run,) = theatre.submitted
    assert set(run.roster.consumers) == {0, 1}
    assert not theatre.ended


def test_a_silent_producer_ends_the_epoch_and_is_named():
    theatre = Theatre()
    consumers = [theatre.consumer(index) for index in range(2)]
    theatre.stage(1, 2)
    (run,) = theatre.submitted
    producer = theatre.producer(run, 3)
    assert [member.partition for member in silent(theatre, producer)] == [3]
    ((_, _, cause),) = theatre.epochs
    assert cause.code == "HG-3001"
    assert "producer of partition 3, stage 50" in cause.summary
    assert "heartbeat_timeout" in cause.remedy
    assert [theatre.last(c)["summary"] for c in consumers] == [cause.summary] * 2
    assert theatre.kinds(producer) == ["GO"]
    # Its later messages are refused.
    with pytest.raises(Exception, match="unexpected DONE"):
        theatre.done(producer, run.number)


def test_a_silent_producer_that_was_done_is_killed_and_ends_nothing():
    theatre = Theatre()
    for index in range(2):
        theatre.consumer(index)
    theatre.stage(1, 2)
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.say(producer, "DONE", {"rows": 1, "bytes": 1, "pages": 1, "peak": 0}, run.number)
    assert [member.partition for member in silent(theatre, producer)] == [0]
    assert not theatre.epochs
    assert run.cause is None


def test_a_silent_reader_that_gave_nothing_yet_is_replaced_and_a_later_one_ends_the_epoch():
    play = Play()
    reader = play.reader(1)
    assert [member.partition for member in silent(play, reader)] == [1]
    assert play.enumerator.heard[-1] == ("lost", 1)
    assert not play.asked
    again = play.reader(1, attempt=99, registered=True)
    assert play.kinds(again) == ["GO"]
    play.give(again, "a")
    silent(play, again)
    ((_, _, cause),) = play.epochs
    assert cause.code == "HG-3001"
    assert "reader 1 of source 'numbers' on host-1" in cause.summary
    assert cause.summary.endswith("unfinished splits: a")


def silent(theatre, connection):
    """Let a worker fall silent; return the members whose tasks are to be killed."""
    theatre.coordinator.silent(connection, "h", 10.0)
    theatre.settle()
    killed, theatre.killed = theatre.killed, []
    return killed
