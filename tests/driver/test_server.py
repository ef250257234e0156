"""A control server over real sockets: who gets in, and what costs whom. Its service is that of places."""

import logging
import socket
import threading
from pathlib import Path

import pytest
from tests.kit.leftovers import our_threads
from tests.kit.places import EXCHANGE, KEYS, OTHER, connected, place, serving, told
from tests.kit.resources import no_descriptor_left
from tests.kit.waiting import wait_until

from headgate.control import newcomers
from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.link import CoordinatorLink, WorkerLink, control_key
from headgate.control.messages import Message
from headgate.errors import CoordinatorError, HandshakeError, VersionError
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.wire import CODEC

#: A host with a name of 9 kB.
HOST = ["h" * 9_000, 4711, "ab" * 16]


@pytest.fixture
def places():
    before = our_threads()
    with serving() as places:
        yield places
    assert our_threads() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", places.server.port), timeout=1)


def strangers(places):
    return [peer for peer in tuple(places.server.peers) if not peer.token]


def test_a_worker_asks_once_per_connection(places):
    with connected(places) as worker:
        assert told(worker) == ["HOSTS"]
        worker.send(Message("ASK_HOSTS"))
        with pytest.raises(CoordinatorError):
            worker.receive()


def test_a_wrong_secret_gets_nowhere(places):
    with pytest.raises(HandshakeError):
        WorkerConnection(place(places, b"x" * 32), CODEC)


def test_an_exchange_that_is_forgotten_lets_nobody_in(places):
    with connected(places) as worker:
        assert told(worker) == ["HOSTS"]
    places.forget(EXCHANGE)
    with pytest.raises(HandshakeError):
        WorkerConnection(place(places), CODEC)
    with connected(places, OTHER) as worker:
        assert told(worker) == ["HOSTS"]


def test_a_driver_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CoordinatorError, match=f"127.0.0.1:{port}"):
        WorkerConnection(
            CoordinatorAddress("127.0.0.1", port, EXCHANGE, b"s" * 32, timeout=0.5), CODEC
        )


def test_garbage_closes_that_connection_only(places):
    with connected(places) as worker:
        with socket.create_connection(("127.0.0.1", places.server.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100)
            assert stranger.recv(100) == b""
        assert told(worker) == ["HOSTS"]


def test_a_message_that_only_the_driver_sends_closes_the_connection(places, caplog):
    with connected(places) as worker:
        worker.send(Message("HOSTS", {"hosts": [], "producers": [], "is_last": True}))
        with pytest.raises(CoordinatorError, match="closed the connection"):
            worker.receive()
    assert "a HOSTS message, which a driver only sends" in caplog.text


def test_silent_peers_are_limited_in_number_and_time(monkeypatch):
    monkeypatch.setattr(newcomers, "MAX_STRANGERS", 4)
    with serving(handshake=0.3) as places:
        silent = [socket.create_connection(("127.0.0.1", places.server.port)) for _ in range(12)]
        wait_until(lambda: len(strangers(places)) <= 4, "connections above the limit were closed")
        with connected(places) as worker:
            wait_until(lambda: not strangers(places), "the idle connections were closed")
            assert told(worker) == ["HOSTS"]
        for peer in silent:
            peer.settimeout(5)
            assert peer.recv(10) == b""
            peer.close()


def test_a_worker_that_says_nothing_is_closed():
    with serving(idle=0.3) as places, connected(places) as worker:
        assert told(worker) == ["HOSTS"]
        with pytest.raises(CoordinatorError, match="closed the connection"):
            worker.receive()


def test_a_loop_that_could_not_run_takes_nobody_for_silent():
    with serving(handshake=1.5) as places, socket.socket() as sock:
        stopped, go_on = threading.Event(), threading.Event()

        def stop():
            stopped.set()
            assert go_on.wait(30)

        sock.settimeout(20)
        sock.connect(("127.0.0.1", places.server.port))
        wait_until(lambda: places.server.peers, "the connection was accepted")
        places._thread.call(stop)
        assert stopped.wait(20)
        (peer,) = places.server.peers
        wait_until(lambda: peer._timer.when() + 1.1 < places._thread._loop.time(), "it is late")
        link = WorkerLink(KEYS[EXCHANGE], EXCHANGE, CODEC)
        sock.sendall(link.output())
        link.written(link.pending)
        go_on.set()
        while not link.established:
            data = sock.recv(1000)
            assert data, "the connection was closed"
            link.receive(data)
            link.written(sock.send(link.output()))


def test_an_error_of_its_own_costs_one_connection(places, monkeypatch, caplog):
    def explode(_):
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(places, "_tell", explode)
        with connected(places) as worker:
            worker.send(Message("ASK_HOSTS"))
            with pytest.raises(CoordinatorError, match="closed the connection"):
                worker.receive()
    with connected(places, OTHER) as worker:
        assert told(worker) == ["HOSTS"]
    assert "failed at a worker's bytes" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_a_handler_of_the_log_that_raises_costs_one_connection(places, monkeypatch):
    def fail(*_):
        raise ValueError("disk full")

    monkeypatch.setattr(logging.getLogger("headgate.spark"), "log", fail)
    with connected(places) as worker:
        worker.send(Message("HOSTS", {"hosts": [], "producers": [], "is_last": True}))
        with pytest.raises(CoordinatorError):
            worker.receive()
    with connected(places) as worker:
        assert told(worker) == ["HOSTS"]


def test_a_worker_of_another_version_is_told_so(places):
    link = WorkerLink(KEYS[EXCHANGE], EXCHANGE, CODEC)
    hello = bytearray(link.output())
    hello[5:9] = b"\0\x63" * 2
    with socket.create_connection(("127.0.0.1", places.server.port), timeout=20) as sock:
        sock.sendall(hello)
        with pytest.raises(VersionError, match="different versions"):
            link.receive(sock.recv(100))


def test_without_a_descriptor_the_server_waits_and_says_so_once(places, caplog):
    def words():
        return [r for r in caplog.records if "cannot accept connections" in r.getMessage()]

    with connected(places), socket.socket() as waiting, caplog.at_level(logging.INFO):
        with no_descriptor_left():
            waiting.connect(("127.0.0.1", places.server.port))
            wait_until(words, "it has said so", 20)
        waiting.settimeout(20)
        wait_until(lambda: len(places.server.peers) == 2, "it was accepted", 20)
    (line,) = words()
    assert line.levelname == "ERROR"
    assert "Too many open files" in line.getMessage()


def resident():
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))


class MuchToTell(KeptHosts):
    """Tells 13 MiB."""

    def messages(self, _):
        return [{"hosts": [HOST], "producers": [], "is_last": False}] * 1500


def test_a_worker_that_reads_nothing_is_closed_before_it_costs_32_mib(caplog):
    with serving(MuchToTell()) as places, connected(places) as worker:
        before = resident()
        worker.send(Message("ASK_HOSTS"))
        wait_until(lambda: not places.server.peers, "the connection is closed", 20)
        assert resident() - before < 32 << 20
    assert "bytes unread, more than the limit of 8388608" in caplog.text


def test_60_mib_of_output_are_not_copied_whole_at_each_write():
    key = control_key(b"s" * 32, EXCHANGE)
    worker, coordinator = (
        WorkerLink(key, EXCHANGE, CODEC),
        CoordinatorLink({EXCHANGE: key}.get, CODEC),
    )
    for sender, receiver in ((worker, coordinator), (coordinator, worker), (worker, coordinator)):
        data = sender.output()
        sender.written(len(data))
        receiver.receive(data)
    message = Message("HOSTS", {"hosts": [HOST], "producers": [], "is_last": False})
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
