"""A worker's connection from the JVM: it acknowledges at once, and nothing of it is left open."""

import socket
from pathlib import Path

import pytest

from headgate.spark.tasks.worker_socket import without_delays

ACKNOWLEDGE = getattr(socket, "TCP_QUICKACK", None)


@pytest.fixture
def jvm():
    """The two ends of a TCP connection of this host: the JVM's, and the worker's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as worker,
    ):
        accepted, _ = listening.accept()
        with accepted:
            yield accepted, worker


def delays(worker):
    """Return True for each direction of a connection in which TCP waits for more data."""
    sends = not worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    if ACKNOWLEDGE is None:
        return sends, False
    return sends, not worker.getsockopt(socket.IPPROTO_TCP, ACKNOWLEDGE)


def wait(worker):
    """Let TCP delay acknowledgements, as it does once both ends have talked."""
    if ACKNOWLEDGE is not None:
        worker.setsockopt(socket.IPPROTO_TCP, ACKNOWLEDGE, 0)


def test_neither_direction_waits_before_and_after_each_batch(jvm):
    _, worker = jvm
    wait(worker)
    seen = []

    def batches():
        for number in range(3):
            seen.append(delays(worker))
            wait(worker)
            yield number

    assert list(without_delays(batches())) == [0, 1, 2]
    assert seen == [(False, False)] * 3
    assert delays(worker) == (False, False)


def open_files():
    return sorted(entry.name for entry in Path("/dev/fd").iterdir())


def test_nothing_stays_open(jvm):
    before = open_files()
    for stop in (True, False):
        batches = without_delays(iter(range(3)))
        next(batches)
        if stop:
            batches.close()
        else:
            assert list(batches) == [1, 2]
        assert open_files() == before


def test_other_files_and_sockets_are_left_alone(tmp_path):
    one, other = socket.socketpair()
    with (
        one,
        other,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        (tmp_path / "file").open("w"),
    ):
        before = open_files()
        assert list(without_delays([1])) == [1]
        assert not listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert datagrams.fileno() > 0
        assert open_files() == before
        one.send(b"x")
        assert other.recv(1) == b"x"


def test_an_error_of_the_input_passes(jvm):
    def batches():
        yield 1
        raise ConnectionError("the JVM is gone")

    found = without_delays(batches())
    assert next(found) == 1
    with pytest.raises(ConnectionError, match="the JVM is gone"):
        next(found)
