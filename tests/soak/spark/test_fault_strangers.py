"""Strangers at the driver's port: without the secret they get nothing and block no worker."""

import contextlib
import os
import select
import socket
import threading
import time

import pytest
from tests.kit.hosts import served
from tests.kit.masters import in_executors
from tests.kit.outcomes import outcome_of, rounds
from tests.kit.places import EXCHANGE, SECRET, connected, place, serving, told
from tests.kit.waiting import wait_until

from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.link import CoordinatorLink, WorkerLink, control_key
from headgate.control.messages import Message
from headgate.control.newcomers import MAX_NAMED, MAX_STRANGERS
from headgate.errors import HandshakeError, HeadgateError, ProtocolError
from headgate.spark import exchange
from headgate.spark.driver import application
from headgate.spark.driver.host_lookup import IDLE
from headgate.spark.wire import CODEC

#: A HELLO of a worker that knows the exchange's id but not its secret.
HELLO = bytes(WorkerLink(control_key(b"?" * 32, EXCHANGE), EXCHANGE, CODEC).output())
#: Maximum bytes that a stranger receives: one challenge.
CHALLENGE = 91
#: The bytes before the proof in a PROOF message.
PROOF = b"HDGT\x03"
#: The answer to a proof that is wrong.
REJECTION = b"HDGT\x05\x02\0\0\0\0"


@pytest.fixture
def places():
    with serving() as places:
        yield places


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
def test_half_open_connections_leave_a_run_untouched(places, data):
    with connected(places) as first:
        before, most = resident_kib(), 0
        times = rounds(2_000, 10_000)
        flooding = threading.Thread(target=flood, args=(places.server.port, times, data))
        started = time.monotonic()
        flooding.start()
        while flooding.is_alive():
            most = max(most, len(places.server.peers))
            time.sleep(0.005)
        seconds = time.monotonic() - started
        # The worker, the pending connections, and the one being accepted.
        assert most <= MAX_STRANGERS + MAX_NAMED + 2
        growth = resident_kib() - before
        print(f"{times} connects in {seconds:.1f} s, at most {most} open, {growth} KiB more")
        assert growth < 16 * 1024
        if seconds < IDLE / 2:
            assert told(first) == ["HOSTS"]
    wait_until(lambda: not places.server.peers, "the idle connections were closed")
    with connected(places) as second:
        assert told(second) == ["HOSTS"]


def test_a_handshake_of_a_byte_at_a_time_has_a_deadline():
    with serving(handshake=1.0) as places:
        sock = dial(places.server.port)
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


def test_a_worker_gets_in_while_strangers_flood(places):
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            flood(places.server.port, 50, HELLO, keep=40)

    flooding = threading.Thread(target=go_on)
    flooding.start()
    try:
        for _ in range(rounds(5, 200)):
            connection = WorkerConnection(place(places, timeout=30.0), CODEC)
            with connection.sock:
                assert told(connection) == ["HOSTS"]
    finally:
        stop.set()
        flooding.join(30)


def test_no_forged_proof_is_taken():
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    times = rounds(2_000, 1_000_000)
    for _ in range(times):
        link = CoordinatorLink(keys.get, CODEC)
        link.receive(HELLO)
        assert link.pending == CHALLENGE
        with pytest.raises(HandshakeError):
            link.receive(PROOF + os.urandom(32))
        assert not link.established


def record(places):
    """Run the whole session of a worker; return the bytes sent and the bytes received."""
    link = WorkerLink(control_key(SECRET, EXCHANGE), EXCHANGE, CODEC)
    sent, got = [], []
    with dial(places.server.port) as sock:
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
        link.send(Message("ASK_HOSTS"))
        sent.append(bytes(link.output()))
        sock.sendall(sent[-1])
        assert link.receive(sock.recv(1000))
    return sent, got


def answer(sock):
    """Return the bytes that arrive until the other end closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(1000):
            data += part
    return data


def test_a_recorded_session_opens_nothing_a_second_time(places):
    sent, got = record(places)
    with dial(places.server.port, sent[0]) as sock:
        time.sleep(0.1)
        sock.sendall(b"".join(sent[1:]))
        said = answer(sock)
    assert len(said) in {0, CHALLENGE, CHALLENGE + len(REJECTION)}
    assert said != got[0]


def test_a_challenge_sent_back_opens_nothing(places):
    with dial(places.server.port, HELLO) as sock:
        challenge = sock.recv(1000)
        sock.sendall(challenge)
        assert answer(sock) == b""
    # Nor does the challenge of another connection with the same HELLO.
    with dial(places.server.port, HELLO) as one, dial(places.server.port, HELLO) as other:
        proofs = [one.recv(1000)[-32:], other.recv(1000)[-32:]]
        one.sendall(PROOF + proofs[1])
        other.sendall(PROOF + proofs[0])
        assert answer(one) == answer(other) == REJECTION


def test_a_coordinator_that_is_a_worker_is_refused():
    key = control_key(SECRET, EXCHANGE)
    one, other = WorkerLink(key, EXCHANGE, CODEC), WorkerLink(key, EXCHANGE, CODEC)
    with pytest.raises(HeadgateError):
        one.receive(bytes(other.output()) + bytes(CHALLENGE))
    assert not one.established


@pytest.mark.parametrize("extra", [0, 1])
def test_the_right_secret_and_the_wrong_exchange(places, extra):
    stranger = b"z" * 15 + bytes([extra])
    with pytest.raises(HandshakeError) as caught:
        WorkerConnection(
            CoordinatorAddress("127.0.0.1", places.server.port, stranger, SECRET, 5.0), CODEC
        )
    assert SECRET.hex() not in str(caught.value)


def test_frames_of_one_session_are_refused_in_another():
    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    pairs = [
        (WorkerLink(keys[EXCHANGE], EXCHANGE, CODEC), CoordinatorLink(keys.get, CODEC))
        for _ in range(2)
    ]
    for worker, coordinator in pairs:
        for source, sink in ((worker, coordinator), (coordinator, worker)) * 2:
            data = bytes(source.output())
            source.written(len(data))
            sink.receive(data)
        worker.send(Message("ASK_HOSTS"))
    frames = [bytes(worker.output()) for worker, _ in pairs]
    with pytest.raises(ProtocolError):
        pairs[0][1].receive(frames[1])


def test_strangers_are_named_in_the_log_ten_times_and_then_once_in_a_thousand(places, caplog):
    def closed():
        return [r.args[0] for r in caplog.records if "connection was closed" in r.getMessage()]

    for _ in range(2_050):
        with dial(places.server.port, b"GET / HTTP/1.1\r\n" + b"x" * 100) as sock:
            answer(sock)
    wait_until(lambda: len(closed()) >= 12, "12 are closed", 30)
    assert closed() == [*range(1, 11), 1_000, 2_000]


@in_executors
def test_a_job_runs_on_while_strangers_flood_the_drivers_port(spark, numbers, monkeypatch):
    def slowly(batches):
        for batch in batches:
            time.sleep(0.3)
            yield batch

    outcomes, count = [], 0
    with served(spark, monkeypatch):
        result = exchange(numbers, by="k", map=slowly, schema=numbers.schema)
        port = application.of(spark.sparkContext)._host_lookup.server.port
        action = threading.Thread(target=lambda: outcomes.append(outcome_of(result)))
        action.start()
        while action.is_alive():
            count += flood(port, 50, HELLO, keep=30)
            time.sleep(0.05)
        action.join()
    print(f"{count} connects")
    assert outcomes == ["rows"]
