"""Control connections under TLS: nothing is readable, altered bytes are an error, and nobody stands between the two ends."""

import socket
import threading

import pytest
from tests.kit.leftovers import our_threads
from tests.kit.places import EXCHANGE, SECRET, serving, told
from tests.kit.waiting import wait_until

from headgate._native import TlsEndpoint
from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.heartbeat import Heartbeats
from headgate.control.link import CoordinatorLink, WorkerLink, control_key
from headgate.control.messages import Message
from headgate.errors import CoordinatorError, HandshakeError, ProtocolError, TlsError
from headgate.spark.wire import CODEC

KEY = control_key(SECRET, EXCHANGE, tls=True)
CLEAR = control_key(SECRET, EXCHANGE)
MARK = "a text that nobody else may read"
PLACES = {"hosts": [[MARK, 4711, "ab" * 16]], "producers": [], "is_last": True}
#: Seconds; the smallest value of the option.
TIMEOUT = 2.0


def pair():
    return WorkerLink(KEY, EXCHANGE, CODEC), CoordinatorLink({EXCHANGE: KEY}.get, CODEC)


def drain(link):
    data = b""
    while link.pending:
        part = link.output()
        link.written(len(part))
        data += part
    return data


def shake(worker, coordinator, step=None):
    """Carry bytes both ways until both are silent, in pieces of ``step`` bytes; return all of them."""
    carried = b""
    while data := [(coordinator, drain(worker)), (worker, drain(coordinator))]:
        if not any(part for _, part in data):
            return carried
        for receiver, part in data:
            carried += part
            for start in range(0, len(part), step or len(part) or 1):
                assert receiver.receive(part[start : start + (step or len(part))]) == []
    return carried


def established():
    worker, coordinator = pair()
    shake(worker, coordinator)
    assert worker.established
    assert coordinator.established
    return worker, coordinator


@pytest.mark.parametrize("step", [None, 1, 7])
def test_messages_pass_both_ways_and_cannot_be_read(step):
    worker, coordinator = pair()
    carried = shake(worker, coordinator, step)
    # The exchange's number and the magic of its handshake are inside of TLS too.
    assert EXCHANGE not in carried
    assert b"HDGT" not in carried
    for sender, receiver in ((worker, coordinator), (coordinator, worker)):
        sender.send(Message("HOSTS", PLACES))
        sender.send(Message("ASK_HOSTS"))
        data = drain(sender)
        assert MARK.encode() not in data
        got = []
        for start in range(0, len(data), step or len(data)):
            got += receiver.receive(data[start : start + (step or len(data))])
        assert [message.kind for message in got] == ["HOSTS", "ASK_HOSTS"]
        assert got[0].fields == PLACES


def test_a_bit_in_each_byte_of_a_message_is_an_error():
    worker, _ = established()
    worker.send(Message("ASK_HOSTS"))
    length = len(drain(worker))
    for position in range(length):
        # The version in a record's head is not checked, and decides nothing (RFC 8446, section 5.1).
        if position in {1, 2}:
            continue
        worker, coordinator = established()
        worker.send(Message("ASK_HOSTS"))
        data = bytearray(drain(worker))
        data[position] ^= 1 << position % 8
        with pytest.raises(TlsError):
            # A longer length in the record's head waits for more bytes.
            coordinator.receive(bytes(data) + bytes(1 << 16))


def test_a_bit_in_each_byte_of_the_handshake_establishes_nothing():
    worker, _ = pair()
    for position in range(len(drain(worker))):
        worker, coordinator = pair()
        data = bytearray(drain(worker))
        data[position] ^= 1 << position % 8
        try:
            coordinator.receive(bytes(data))
            shake(worker, coordinator)
        except (TlsError, ProtocolError):
            pass  # a peer that does not speak the protocol, or waits for the rest of a longer record
        # The second byte of the version in a record's head decides nothing, as above.
        assert coordinator.established <= (position == 2), position


def test_one_in_the_middle_is_refused_by_both():
    """It has a session with each end and carries what is inside: the proofs are of another session."""
    worker, coordinator = pair()
    endpoint = TlsEndpoint()
    to_worker, to_coordinator = endpoint.accept(), endpoint.dial()
    inside = {b"to the worker": b"", b"to the coordinator": b""}
    refused = []
    for _ in range(8):
        for link, session, out in (
            (worker, to_worker, b"to the coordinator"),
            (coordinator, to_coordinator, b"to the worker"),
        ):
            clear = session.receive(drain(link))
            inside[out] += clear
        for link, session, out in (
            (worker, to_worker, b"to the worker"),
            (coordinator, to_coordinator, b"to the coordinator"),
        ):
            if session.binding is not None and inside[out]:
                session.send(inside[out])
                inside[out] = b""
            try:
                if not refused:
                    link.receive(session.take_output())
            except HandshakeError as error:
                refused.append((link, error))
    assert [link for link, _ in refused] == [worker]
    assert "could not prove" in str(refused[0][1])
    # A worker that does not check the proof is refused too.
    to_coordinator.send(b"HDGT\x03" + b"\0" * 32)
    with pytest.raises(HandshakeError, match="could not prove"):
        coordinator.receive(to_coordinator.take_output())
    assert not worker.established
    assert not coordinator.established


def test_a_recorded_session_cannot_be_played_again():
    worker, coordinator = pair()
    recorded = []
    for _ in range(4):
        recorded.append(drain(worker))
        coordinator.receive(recorded[-1])
        worker.receive(drain(coordinator))
    assert coordinator.established
    again = CoordinatorLink({EXCHANGE: KEY}.get, CODEC)
    again.receive(recorded[0])
    with pytest.raises(TlsError):
        again.receive(b"".join(recorded[1:]))
    assert not again.established


def test_a_worker_without_tls_is_refused_before_any_proof():
    coordinator = CoordinatorLink({EXCHANGE: KEY}.get, CODEC)
    with pytest.raises(TlsError, match='tls="require"'):
        coordinator.receive(drain(WorkerLink(CLEAR, EXCHANGE, CODEC)))
    assert not coordinator.pending
    assert not coordinator.established


def test_a_driver_without_tls_is_no_driver():
    worker = WorkerLink(KEY, EXCHANGE, CODEC)
    with pytest.raises(TlsError):
        worker.receive(b"HDGT\x02" + bytes(86))


def test_an_exchange_without_tls_takes_both():
    for key in (CLEAR, KEY):
        worker, coordinator = (
            WorkerLink(key, EXCHANGE, CODEC),
            CoordinatorLink({EXCHANGE: CLEAR}.get, CODEC),
        )
        shake(worker, coordinator)
        assert coordinator.established
        assert worker.established


@pytest.fixture
def server():
    before = our_threads()
    with serving(keys={EXCHANGE: KEY}) as places:
        yield places.server
    assert our_threads() == before


class Wire:
    """A proxy that keeps what passes, and may put bytes of its own between."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target, self.passed, self.ends = port, [], []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            self.ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                self.passed.append(bytearray())
                pump = threading.Thread(target=self.pump, args=(source, sink, self.passed[-1]))
                pump.start()
                self.threads.append(pump)

    def pump(self, source, sink, passed):
        try:
            while data := source.recv(1 << 16):
                passed += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for end in self.ends:
            end.close()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def wire(server):
    wire = Wire(server.port)
    yield wire
    wire.close()


def place(port, timeout=10.0, *, tls=True):
    return CoordinatorAddress("127.0.0.1", port, EXCHANGE, SECRET, timeout, TIMEOUT, tls)


def records(data):
    """Return the number of whole TLS records; fail if the bytes are anything else."""
    count = position = 0
    while position + 5 <= len(data):
        assert data[position] in {20, 21, 22, 23}, f"byte {position} begins no TLS record"
        assert bytes(data[position + 1 : position + 3]) in {b"\3\1", b"\3\3"}
        position += 5 + int.from_bytes(data[position + 3 : position + 5], "big")
        count += position <= len(data)
    return count


def test_all_that_passes_is_tls(server, wire):
    connection = WorkerConnection(place(wire.port), CODEC)
    with connection.sock:
        assert told(connection) == ["HOSTS"]
    wait_until(lambda: not server.peers, "the connections are closed")
    assert len(wire.passed) == 2
    for way in wire.passed:
        assert records(way)


def test_heartbeats_pass_as_records_of_tls(wire):
    """Both ends beat on a connection whose handshake they have done, and the proxy sees nothing else."""
    listener = socket.create_server(("127.0.0.1", 0))
    wire.target = listener.getsockname()[1]
    near = socket.create_connection(("127.0.0.1", wire.port))
    far, _ = listener.accept()
    listener.close()
    worker, coordinator = established()
    ends = Heartbeats(), Heartbeats()
    try:
        targets = [
            end.monitor(sock, TIMEOUT, link.tls)
            for end, sock, link in zip(ends, (near, far), (worker, coordinator), strict=True)
        ]
        for way in wire.passed:
            wait_until(lambda way=way: records(bytes(way)) > 4, "beats")
        assert [end.silence(target) for end, target in zip(ends, targets, strict=True)] == [
            None
        ] * 2
    finally:
        for end in ends:
            end.close()


def test_bytes_of_others_are_no_heartbeats(server):
    """The worker's thread gets bytes of TLS records that the driver did not make, and takes the driver for lost."""
    near, far = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listener.getsockname())
    near, _ = listener.accept()
    listener.close()
    worker, _ = established()
    heartbeats = Heartbeats()
    try:
        driver = heartbeats.monitor(near, TIMEOUT, worker.tls)
        stop = threading.Event()

        def forge():
            while not stop.wait(0.1):
                far.send(b"\x17\x03\x03\0\x20" + bytes(32))

        forger = threading.Thread(target=forge)
        forger.start()
        wait_until(lambda: heartbeats.silence(driver) is not None, "the driver counts as lost", 20)
        stop.set()
        forger.join()
    finally:
        heartbeats.close()
        far.close()


def test_a_worker_without_tls_is_closed_and_the_driver_says_why(server, caplog):
    with pytest.raises(CoordinatorError, match="cannot be reached"):
        WorkerConnection(place(server.port, 0.5, tls=False), CODEC)
    assert "came without TLS" in caplog.text
