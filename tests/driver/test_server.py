"""The driver's control server over real sockets: who gets in, and what costs whom."""

import errno
import itertools
import logging
import os
import socket
import time
from pathlib import Path

import pytest
from tests.driver.served import EXCHANGE, KEYS, OTHER, Kept, connected, ours, place, serving, told
from tests.faults.patience import wait_until

from headgate.control import newcomers
from headgate.control.connection import WorkerConnection
from headgate.control.place import Place
from headgate.errors import CoordinatorError, HandshakeError, VersionError
from headgate.spark.driver import server as module
from headgate.spark.wire.channel import MESSAGES, CoordinatorLink, WorkerLink, control_key
from headgate.spark.wire.messages import Message

#: A host with a name as long as it may be.
HOST = ["h" * 9_000, 4711, "ab" * 16]


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def server(kept):
    before = ours()
    with serving(kept) as server:
        yield server
    assert ours() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_a_worker_tells_and_asks_once_per_connection(server, kept):
    with connected(server) as worker:
        worker.send(Message("HOST_LOST", {"process": "ab" * 16}))
        assert told(worker) == ["PLACES"]
        worker.send(Message("ASK_PLACES"))
        with pytest.raises(CoordinatorError):
            worker.receive()
    assert kept.asked == [EXCHANGE]
    assert kept.lost == [(EXCHANGE, "ab" * 16)]


def test_a_wrong_secret_gets_nowhere(server):
    with pytest.raises(HandshakeError):
        WorkerConnection(place(server, b"x" * 32), MESSAGES)


def test_an_exchange_that_is_forgotten_lets_nobody_in(kept):
    keys = dict(KEYS)
    with serving(kept, keys=keys) as server:
        with connected(server) as worker:
            assert told(worker) == ["PLACES"]
        del keys[EXCHANGE]
        with pytest.raises(HandshakeError):
            WorkerConnection(place(server), MESSAGES)
        with connected(server, OTHER) as worker:
            assert told(worker) == ["PLACES"]


def test_a_driver_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CoordinatorError, match=f"127.0.0.1:{port}"):
        WorkerConnection(Place("127.0.0.1", port, EXCHANGE, b"s" * 32, timeout=0.5), MESSAGES)


def test_garbage_closes_that_connection_only(server):
    with connected(server) as worker:
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100)
            assert stranger.recv(100) == b""
        assert told(worker) == ["PLACES"]


def test_a_message_that_only_the_driver_sends_closes_the_connection(server, caplog):
    with connected(server) as worker:
        worker.send(Message("PLACES", {"hosts": [], "producers": [], "is_last": True}))
        with pytest.raises(CoordinatorError, match="closed the connection"):
            worker.receive()
    assert "a PLACES message, which a driver only sends" in caplog.text


def test_silent_peers_are_limited_in_number_and_time(monkeypatch):
    monkeypatch.setattr(newcomers, "MAX_STRANGERS", 4)
    with serving(handshake=0.3) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
        wait_until(lambda: len(server._connections) <= 4, "connections above the limit were closed")
        with connected(server) as worker:
            wait_until(lambda: len(server._connections) == 1, "the idle connections were closed")
            assert told(worker) == ["PLACES"]
        for peer in silent:
            peer.settimeout(5)
            assert peer.recv(10) == b""
            peer.close()


def test_a_worker_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(module, "SILENCE", 0.3)
    with serving() as server, connected(server) as worker:
        assert told(worker) == ["PLACES"]
        with pytest.raises(CoordinatorError, match="closed the connection"):
            worker.receive()


def test_a_loop_that_fails_says_so_and_ends(server, monkeypatch, caplog):
    def explode():
        raise ZeroDivisionError("a bug")

    with connected(server) as worker:
        monkeypatch.setattr(server, "_expire", explode)
        wait_until(lambda: not server.is_alive, "the thread ended")
        assert "the driver's control server failed" in caplog.text
        with pytest.raises(CoordinatorError):
            worker.receive()


def test_an_error_of_its_own_costs_one_connection(server, kept, monkeypatch, caplog):
    def explode(_):
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(kept, "places", explode)
        with connected(server) as worker:
            worker.send(Message("ASK_PLACES"))
            with pytest.raises(CoordinatorError, match="closed the connection"):
                worker.receive()
    with connected(server, OTHER) as worker:
        assert told(worker) == ["PLACES"]
    assert "failed at a worker's bytes" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_a_worker_of_another_version_is_told_so(server):
    link = WorkerLink(KEYS[EXCHANGE], EXCHANGE)
    hello = bytearray(link.output())
    hello[5:9] = b"\0\x63" * 2
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(hello)
        with pytest.raises(VersionError, match="different versions"):
            link.receive(sock.recv(100))


def test_without_a_descriptor_the_driver_waits_and_says_so_once(server, monkeypatch, caplog):
    tried = []

    def accept(_):
        tried.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    caplog.set_level(logging.INFO, "headgate.spark")
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", accept)
        with socket.create_connection(("127.0.0.1", server.port)):
            wait_until(lambda: len(tried) >= 5, "five tries", 20)
    steps = [late - soon for soon, late in itertools.pairwise(tried)]
    assert min(steps) >= 0.09, f"seconds between tries: {steps}"
    lines = [r for r in caplog.records if "cannot accept connections" in r.getMessage()]
    assert [line.levelname for line in lines] == ["ERROR"]
    assert "Too many open files" in lines[0].getMessage()
    with connected(server) as worker:
        assert told(worker) == ["PLACES"]


def resident():
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))


def much(count):
    """Return messages of 9 kB each."""
    message = Message("PLACES", {"hosts": [HOST], "producers": [], "is_last": False})
    return [message] * count


def test_a_worker_that_reads_nothing_is_closed_before_it_costs_32_mib(
    server, kept, monkeypatch, caplog
):
    monkeypatch.setattr(kept, "places", lambda _: much(1500))  # 13 MiB
    before = resident()
    with connected(server) as worker:
        worker.send(Message("ASK_PLACES"))
        wait_until(lambda: not server._connections, "the connection is closed", 20)
        assert resident() - before < 32 << 20
    assert "bytes unread, more than the limit of 8388608" in caplog.text


def test_60_mib_of_output_are_not_copied_whole_at_each_write():
    key = control_key(b"s" * 32, EXCHANGE)
    worker, coordinator = WorkerLink(key, EXCHANGE), CoordinatorLink({EXCHANGE: key}.get)
    for sender, receiver in ((worker, coordinator), (coordinator, worker), (worker, coordinator)):
        data = sender.output()
        sender.written(len(data))
        receiver.receive(data)
    (message,) = much(1)
    sent = 0
    while coordinator.pending < 60 << 20:
        coordinator.send(message)
        sent += 1
    whole, copied, found = coordinator.pending, 0, 0
    while coordinator.pending:
        data = coordinator.output()
        copied += len(data)
        # A socket takes a part.
        taken = min(len(data), 16 << 10)
        coordinator.written(taken)
        found += len(worker.receive(data[:taken]))
    assert copied < 5 * whole
    assert found == sent
