"""The coordinator on its socket: real connections, real threads, no Spark."""

import socket
import threading
import time

import pytest
from tests.driver.actors import EXCHANGE, PLACE, TOTALS
from tests.faults.patience import wait_until

from headgate.control import newcomers
from headgate.control.place import Place
from headgate.errors import CoordinatorError, HandshakeError, VersionError
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing
from headgate.spark.tasks.control import Control, Counts
from headgate.spark.wire.channel import WorkerLink, control_key

SECRET = b"s" * 32


class Side:
    """Records the coordinator's requests to Spark."""

    def __init__(self):
        self.submitted, self.cancelled, self.asked, self.results = [], [], [], []
        self.killed = []
        self.epochs = []

    def submit(self, run):
        self.submitted.append(run)

    def cancel(self, run, epoch):
        self.cancelled.append(run)

    def ask_verdict(self, member):
        self.asked.append(member)

    def kill(self, member, reason):
        self.killed.append((member, reason))

    def epoch_ended(self, run, epoch, cause):
        self.epochs.append((run, epoch, cause))

    def ended(self, run, cause):
        self.results.append((run, cause))

    def tick(self, coordinator):
        coordinator.slots = 4


@pytest.fixture
def side():
    return Side()


@pytest.fixture
def timing():
    return Timing()


@pytest.fixture
def server(side, timing):
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    before = ours()
    server = Server("127.0.0.1", keys.get, lambda _: side, Retries(), timing)
    server.coordinator.exchanges[EXCHANGE] = ExchangeFacts(2)
    server.start()
    yield server
    server.stop()
    assert ours() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def ours():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("headgate"))


def place(server, secret=SECRET, timeout=5.0):
    return Place("127.0.0.1", server.port, EXCHANGE, secret, timeout)


def consumer(server, index, attempt):
    control = Control(place(server))
    fields = {"stage": 1, "partition": index, "attempt": attempt, "index": index}
    control.send("CONSUMER", fields)
    return control


def test_a_whole_run_over_sockets(server, side):
    first, second = consumer(server, 0, 1), consumer(server, 1, 2)
    wait_until(lambda: side.submitted, "the producer job was submitted")
    (run,) = side.submitted
    producer = Control(place(server))
    producer.bind(run.number, run.epoch)
    producer.send("PRODUCER", {"stage": 2, "partition": 0, "attempt": 3})
    assert producer.receive()["wanted"] == [0, 1]
    producer.send("REGISTERED", PLACE)
    assert [first.receive().kind, first.receive()["host"]] == ["START", "h"]
    producer.send("DONE", TOTALS)
    assert producer.receive().kind == "OK"
    producer.close()
    server.post(lambda: server.coordinator.job_ended(run.number, 0, None, {0}))
    assert first.receive()["producers"] == 1
    for control in (first, second):
        control.bind(run.number, run.epoch)
        control.send("DONE", TOTALS)
    assert first.receive().kind == "OK"
    first.close()
    second.close()
    wait_until(lambda: side.results, "the run gave its result")
    assert side.results == [(run, None)]
    wait_until(lambda: not server.coordinator.runs, "the run was forgotten")


def test_a_wrong_secret_gets_nowhere(server):
    with pytest.raises(HandshakeError):
        Control(place(server, b"x" * 32))
    assert not server.coordinator.members


def test_a_driver_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(CoordinatorError, match=f"127.0.0.1:{port}"):
        Control(Place("127.0.0.1", port, EXCHANGE, SECRET, timeout=0.5))
    assert time.monotonic() - started < 5


def test_a_vanished_worker_is_asked_about(server, side):
    controls = [consumer(server, index, index) for index in range(2)]
    wait_until(lambda: side.submitted, "the producer job was submitted")
    controls[0].close()
    wait_until(lambda: side.asked, "Spark was asked for a verdict")
    assert side.asked[0].index == 0
    controls[1].close()


def test_the_listening_thread_handles_reports_and_hears_the_end(server, side):
    control = consumer(server, 0, 1)
    counts, heard = Counts(rows=7, bytes=70), []
    control.listen(heard.append, counts)
    wait_until(
        lambda: any(m.rows == 7 for m in server.coordinator.members.values()),
        "the progress arrived",
    )
    server.stop()
    assert control.await_message("ABORT") is not None
    assert heard[-1]["code"] in {"HG-2301", "HG-3008"}
    control.close()


def test_what_handling_a_message_raises_reaches_the_main_thread(server, side):
    control = consumer(server, 0, 1)
    heard = []

    def handle(message):
        heard.append(message)
        if message.kind == "OK":
            raise MemoryError("no segment is left")

    control.listen(handle, Counts())
    wait_until(lambda: server.coordinator.members, "the member is known")
    (member,) = server.coordinator.members.values()
    server.post(lambda: server.coordinator._send(member, "OK"))
    assert control.await_message("OK") is not None
    assert isinstance(control.error, MemoryError)
    assert [m.kind for m in heard] == ["OK", "ABORT"]
    server.post(lambda: server.coordinator._send(member, "WAIT"))
    assert control.await_message("WAIT") is not None
    control.close()


def test_garbage_closes_that_connection_only(server, side):
    control = consumer(server, 0, 1)
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100)
        assert stranger.recv(100) == b""
    assert len(server.coordinator.members) == 1
    control.close()


def test_a_message_out_of_turn_closes_the_connection(server):
    control = Control(place(server))
    control.send("DONE", TOTALS)
    with pytest.raises(CoordinatorError, match="closed the connection"):
        control.receive()
    control.close()


@pytest.mark.parametrize("timing", [Timing(handshake=0.3)])
def test_silent_peers_are_limited_in_number_and_time(server, monkeypatch):
    monkeypatch.setattr(newcomers, "MAX_STRANGERS", 4)
    server._newcomers = newcomers.Newcomers()
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    wait_until(lambda: len(server._connections) <= 4, "connections above the limit were closed")
    control = consumer(server, 0, 1)
    wait_until(lambda: len(server._connections) == 1, "the idle connections were closed")
    for peer in silent:
        peer.settimeout(5)
        assert peer.recv(10) == b""
        peer.close()
    control.close()


def test_a_failing_coordinator_says_so_and_ends(server, side, caplog):
    def explode():
        raise ZeroDivisionError("a bug")

    control = consumer(server, 0, 1)
    # Of the loop itself: test_containment.py has errors in what it does for workers.
    server.post(lambda: setattr(server, "_expire", explode))
    wait_until(lambda: not server._thread.is_alive(), "the thread ended")
    assert "the coordinator failed" in caplog.text
    with pytest.raises(CoordinatorError):
        control.receive()
    control.close()


def test_a_worker_of_another_version_is_told_so(server):
    link = WorkerLink(control_key(SECRET, EXCHANGE), EXCHANGE)
    hello = bytearray(link.output())
    hello[5:9] = b"\0\x63" * 2
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(hello)
        with pytest.raises(VersionError, match="different versions"):
            link.receive(sock.recv(100))
