"""Strangers at the coordinator's port: without the secret they get nothing and block no worker."""

import contextlib
import os
import select
import socket
import threading
import time

import pytest
from tests.driver.actors import EXCHANGE, OTHER, TOTALS
from tests.driver.test_heartbeat import SECRET, Side
from tests.driver.test_server import consumer, place
from tests.faults.patience import wait_until
from tests.spark.outcomes import outcome_of, rounds, wait_for

from headgate.control.newcomers import MAX_NAMED, MAX_STRANGERS
from headgate.control.place import Place
from headgate.errors import CoordinatorError, HandshakeError, HeadgateError, ProtocolError
from headgate.spark import exchange
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing
from headgate.spark.tasks.control import Control
from headgate.spark.wire.channel import CoordinatorLink, WorkerLink, control_key
from headgate.spark.wire.messages import Message

#: A HELLO of a worker that knows the exchange's id but not its secret.
HELLO = bytes(WorkerLink(control_key(b"?" * 32, EXCHANGE), EXCHANGE).output())
#: Maximum bytes that a stranger receives: one challenge.
CHALLENGE = 91
#: The bytes before the proof in a PROOF message.
PROOF = b"HDGT\x03"
#: The answer to a proof that is wrong.
REJECTION = b"HDGT\x05\x02\0\0\0\0"


@contextlib.contextmanager
def serving(timing=Timing()):  # noqa: B008 - frozen
    side, keys = Side(), {EXCHANGE: control_key(SECRET, EXCHANGE)}
    keys[OTHER] = control_key(SECRET, OTHER)
    server = Server("127.0.0.1", keys.get, lambda _: side, Retries(), timing)
    for exchange_id in keys:
        server.coordinator.exchanges[exchange_id] = ExchangeFacts(2)
    server.start()
    try:
        yield server, side
    finally:
        server.stop()


@pytest.fixture
def server():
    with serving() as (server, _):
        yield server


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - no real file
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def dial(port, data=b""):
    """Connect as a stranger; return None if the coordinator closes at once."""
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        if data:
            sock.sendall(data)
    except OSError:
        return None
    return sock


def flood(port, times, data, keep=100):
    """Connect ``times`` times, keep the last ones open and silent; return the number accepted."""
    held, done = [], 0
    for _ in range(times):
        sock = dial(port, data)
        done += sock is not None
        held.append(sock)
        if len(held) > keep:
            oldest = held.pop(0)
            if oldest is not None:
                oldest.close()
    for sock in filter(None, held):
        sock.close()
    return done


@pytest.mark.parametrize("data", [b"", HELLO[:10], HELLO], ids=["silent", "cut", "half"])
def test_half_open_connections_leave_a_run_untouched(server, data):
    first = consumer(server, 0, 1)
    first._start_heartbeats()
    wait_until(lambda: server.coordinator.members, "the member is known")
    before, most = resident_kib(), 0
    times = rounds(2_000, 10_000)
    flooding = threading.Thread(target=flood, args=(server.port, times, data))
    started = time.monotonic()
    flooding.start()
    while flooding.is_alive():
        most = max(most, len(server._connections))
        time.sleep(0.005)
    seconds = time.monotonic() - started
    assert server.is_alive
    # The member, the pending connections, and the one being accepted.
    assert most <= MAX_STRANGERS + MAX_NAMED + 2
    assert all(member.is_present for member in server.coordinator.members.values())
    assert len(server.coordinator.members) == 1
    wait_until(lambda: len(server._connections) == 1, "the idle connections were closed")
    growth = resident_kib() - before
    print(f"{times} connects in {seconds:.1f} s, at most {most} open, {growth} KiB more")
    assert growth < 16 * 1024
    second = consumer(server, 1, 2)
    wait_until(lambda: len(server.coordinator.members) == 2, "both members are known")
    for control in (first, second):
        control.close()


def test_a_handshake_of_a_byte_at_a_time_has_a_deadline():
    with serving(Timing(handshake=1.0)) as (server, _):
        sock = dial(server.port)
        started, sent = time.monotonic(), 0
        with sock, contextlib.suppress(OSError):
            while time.monotonic() - started < 30 and not select.select([sock], [], [], 0.2)[0]:
                sock.sendall(HELLO[sent : sent + 1])
                sent += 1
            assert sock.recv(100) == b""
    assert sent < len(HELLO)
    assert seconds_since(started) < 10


def seconds_since(started):
    return time.monotonic() - started


def test_a_worker_gets_in_while_strangers_flood(server):
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            flood(server.port, 50, HELLO, keep=40)

    flooding = threading.Thread(target=go_on)
    flooding.start()
    try:
        for attempt in range(rounds(5, 200)):
            control = Control(place(server, timeout=30.0))
            control.send("CONSUMER", {"stage": 9, "partition": 0, "attempt": attempt, "index": 0})
            control.close()
    finally:
        stop.set()
        flooding.join(30)
    assert server.is_alive


def test_no_forged_proof_is_taken():
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    times = rounds(2_000, 1_000_000)
    for _ in range(times):
        link = CoordinatorLink(keys.get)
        link.receive(HELLO)
        assert link.pending == CHALLENGE
        with pytest.raises(HandshakeError):
            link.receive(PROOF + os.urandom(32))
        assert not link.established


def record(server):
    """Run the whole session of a worker; return the bytes sent and the bytes received."""
    link = WorkerLink(control_key(SECRET, EXCHANGE), EXCHANGE)
    sent, got = [], []
    with dial(server.port) as sock:
        sent.append(bytes(link.output()))
        sock.sendall(sent[-1])
        link.written(len(sent[-1]))
        while not link.established:
            got.append(sock.recv(1000))
            link.receive(got[-1])
            if link.pending:
                sent.append(bytes(link.output()))
                sock.sendall(sent[-1])
                link.written(len(sent[-1]))
        fields = {"stage": 1, "partition": 0, "attempt": 1, "index": 0}
        link.send(Message("CONSUMER", fields=fields))
        sent.append(bytes(link.output()))
        sock.sendall(sent[-1])
        wait_until(lambda: server.coordinator.members, "the member is known")
    wait_until(lambda: not server.coordinator.members, "the member was forgotten")
    return sent, got


def answer(sock):
    """Return the bytes that arrive until the other end closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(1000):
            data += part
    return data


def test_a_recorded_session_opens_nothing_a_second_time(server):
    sent, got = record(server)
    with dial(server.port, sent[0]) as sock:
        time.sleep(0.1)
        sock.sendall(b"".join(sent[1:]))
        said = answer(sock)
    assert len(said) in {0, CHALLENGE, CHALLENGE + len(REJECTION)}
    assert said != got[0]
    assert not server.coordinator.members


def test_a_challenge_sent_back_opens_nothing(server):
    with dial(server.port, HELLO) as sock:
        challenge = sock.recv(1000)
        sock.sendall(challenge)
        assert answer(sock) == b""
    # Nor does the challenge of another connection with the same HELLO.
    with dial(server.port, HELLO) as one, dial(server.port, HELLO) as other:
        proofs = [one.recv(1000)[-32:], other.recv(1000)[-32:]]
        one.sendall(PROOF + proofs[1])
        other.sendall(PROOF + proofs[0])
        assert answer(one) == answer(other) == REJECTION
    assert not server.coordinator.members


def test_a_coordinator_that_is_a_worker_is_refused():
    key = control_key(SECRET, EXCHANGE)
    one, other = WorkerLink(key, EXCHANGE), WorkerLink(key, EXCHANGE)
    with pytest.raises(HeadgateError):
        one.receive(bytes(other.output()) + bytes(CHALLENGE))
    assert not one.established


@pytest.mark.parametrize("extra", [0, 1])
def test_the_right_secret_and_the_wrong_exchange(server, extra):
    known = Place("127.0.0.1", server.port, EXCHANGE, SECRET, 5.0)
    with Control(known) as control:
        control.send("CONSUMER", {"stage": 1, "partition": 0, "attempt": 1, "index": 0})
        wait_until(lambda: server.coordinator.members, "the member is known")
        stranger = b"z" * 15 + bytes([extra])
        with pytest.raises(HandshakeError) as caught:
            Control(Place("127.0.0.1", server.port, stranger, SECRET, 5.0))
        assert SECRET.hex() not in str(caught.value)
        assert len(server.coordinator.members) == 1


def test_a_task_of_one_exchange_cannot_speak_for_another(server):
    mine = Control(Place("127.0.0.1", server.port, OTHER, SECRET, 5.0))
    mine.bind(run=77, epoch=0)
    mine.send("PRODUCER", {"stage": 1, "partition": 0, "attempt": 1})
    assert mine.receive()["code"] == "HG-2301"
    mine.close()
    theirs = Control(Place("127.0.0.1", server.port, OTHER, SECRET, 5.0))
    theirs.send("DONE", TOTALS)
    with pytest.raises(CoordinatorError):
        theirs.receive()
    theirs.close()


def test_frames_of_one_session_are_refused_in_another():
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    pairs = [(WorkerLink(keys[EXCHANGE], EXCHANGE), CoordinatorLink(keys.get)) for _ in range(2)]
    for worker, coordinator in pairs:
        for source, sink in ((worker, coordinator), (coordinator, worker)) * 2:
            data = bytes(source.output())
            source.written(len(data))
            sink.receive(data)
        worker.send(Message("READY"))
    frames = [bytes(worker.output()) for worker, _ in pairs]
    with pytest.raises(ProtocolError):
        pairs[0][1].receive(frames[1])


def test_strangers_are_named_in_the_log_ten_times_and_then_once_in_a_thousand(server, caplog):
    def closed():
        return [r.args[0] for r in caplog.records if "connection was closed" in r.getMessage()]

    for _ in range(2_050):
        with dial(server.port, b"GET / HTTP/1.1\r\n" + b"x" * 100) as sock:
            answer(sock)
    assert wait_for(lambda: len(closed()) >= 12, 30)
    assert closed() == [*range(1, 11), 1_000, 2_000]


def test_a_job_runs_on_while_strangers_flood_all_its_ports(spark, numbers, monkeypatch):
    from headgate.spark.driver import application

    ports, message_of = set(), Coordinator.message

    def message(self, connection, exchange_id, message, now):
        if message.kind == "REGISTERED":
            ports.add(message["port"])
        message_of(self, connection, exchange_id, message, now)

    monkeypatch.setattr(Coordinator, "message", message)

    def slowly(batches):
        for batch in batches:
            time.sleep(1)
            yield batch

    outcomes, counts = [], []
    result = exchange(numbers, by="k", map=slowly, schema=numbers.schema)
    action = threading.Thread(target=lambda: outcomes.append(outcome_of(result)))
    action.start()
    assert wait_for(lambda: ports, 60)
    # Connected workers continue. A new one may have to wait for the deadline of the strangers.
    ports.add(application.of(spark.sparkContext).port)
    while action.is_alive():
        counts.extend(flood(port, 50, HELLO, keep=30) for port in list(ports))
        time.sleep(0.05)
    action.join()
    print(f"{sum(counts)} connects at {len(ports)} ports")
    assert outcomes == ["rows"]
