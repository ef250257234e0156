"""Heartbeats: a silent process is lost within the timeout; a forked child leaves them alone."""

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
from tests.kit import resources
from tests.kit.places import EXCHANGE, SECRET
from tests.kit.waiting import wait_until

from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.driver_heartbeats import DriverHeartbeats
from headgate.control.heartbeat import Heartbeats
from headgate.control.link import CoordinatorLink, control_key
from headgate.errors import CoordinatorError
from headgate.stream.job.messages import CODEC

#: Seconds; the smallest value of the option, which keeps the tests short.
TIMEOUT = 2.0


def beat_threads():
    return resources.native_threads().count("headgate-beat")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def no_thread_and_no_file_is_left():
    before, files = beat_threads(), open_files()
    yield
    wait_until(lambda: beat_threads() == before, "threads that beat")
    wait_until(lambda: open_files() <= files, "open files")


def shaken(listener):
    """Accept a worker and do the handshake with it; return its socket, and its messages until it waits."""
    sock, _ = listener.accept()
    link = CoordinatorLink({EXCHANGE: control_key(SECRET, EXCHANGE)}.get, CODEC)
    messages = []
    while not link.established:
        link.receive(sock.recv(4096))
        link.written(sock.send(link.output()))
    return sock, link, messages


@pytest.mark.parametrize("beats", [True, False])
def test_a_driver_that_is_silent_is_lost_and_named(beats):
    """A silent driver's process is there, and its sockets are open."""
    heard, stop = [], threading.Event()

    def drive(listener):
        control, *_ = shaken(listener)
        beside, link, _ = shaken(listener)
        heard.extend(link.receive(beside.recv(4096)))
        with control, beside:
            while not stop.wait(0.2):
                if beats:
                    beside.send(b"\0")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        driver = threading.Thread(target=drive, args=(listener,))
        driver.start()
        port = listener.getsockname()[1]
        place = CoordinatorAddress("127.0.0.1", port, EXCHANGE, SECRET, 30.0, TIMEOUT)
        connection = WorkerConnection(place, CODEC)

        with connection.sock:
            heartbeats = DriverHeartbeats(place, CODEC, connection)
            try:
                if beats:
                    stop.wait(1.5 * TIMEOUT)
                    heartbeats.check()
                else:
                    native = heartbeats._native
                    wait_until(lambda: native.silence(heartbeats._driver) is not None, "silence")
                    with pytest.raises(
                        CoordinatorError, match="no heartbeat from the driver for 2"
                    ) as said:
                        heartbeats.check()
                    assert f"127.0.0.1:{port}" in str(said.value)
                    assert "heartbeat_timeout=2s" in str(said.value)
            finally:
                heartbeats.close()
                stop.set()
                driver.join(10)
    assert [one["control"] for one in heard] == [connection.token]


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
