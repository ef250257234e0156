"""A peer that cannot prove the secret gets no data and does not delay others."""

import hmac
import socket
import struct
import time

import pytest
import wire
from plane import NUMBERS, SECRET, Task, assert_same, drain, numbers, wait_until

import headgate as hg

errors = hg.errors
MAX_PENDING = 64
#: Seconds after which either end drops a peer that is not authenticated.
DEADLINE = 12.0


@pytest.fixture
def served(environment):
    """Return an environment and its partition of 100 rows."""
    producer = environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100))
    return producer, partition


def read(environment, partition):
    """Read the partition as an honest consumer."""
    gate = environment().create_input_gate([partition.address(0)])
    assert_same(Task(drain, gate).result(), numbers(100))


def test_wrong_claims_are_refused_with_one_text(environment, served):
    """All at the same time, since each consumer dials again until its deadline."""
    _, partition = served
    claims = [{"secret": bytes(32)}, {"exchange_id": b"another exchange"}, {"run": 1}, {"epoch": 1}]
    strangers = [environment(**claim) for claim in claims]
    gates = [stranger.create_input_gate([partition.address(0)]) for stranger in strangers]
    readings = [Task(drain, gate) for gate in gates]
    for claim, stranger, reading in zip(claims, strangers, readings, strict=True):
        error = reading.error()
        assert type(error) is errors.HandshakeError
        # The text must not tell which claim was wrong.
        assert "the same exchange, run, epoch and secret" in str(error)
        # Each attempt gets a REJECT, or a CHALLENGE whose proof is wrong, and no more.
        answer = 91 if "secret" in claim else 10
        assert stranger.stats()["bytes_received"] % answer == 0
    read(environment, partition)


@pytest.mark.parametrize("claims", [{}, {"run": 3}, {"epoch": 5}, {"run": 2**32 - 1, "epoch": 7}])
def test_equal_runs_and_epochs_meet(environment, claims):
    producer, consumer = environment(**claims), environment(**claims)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100))
    gate = consumer.create_input_gate([partition.address(0)])
    assert_same(Task(drain, gate).result(), numbers(100))


def test_a_consumer_in_plain_python_is_let_in(served):
    _, partition = served
    sock, steps = wire.consumer(partition.address(0), SECRET)
    with sock:
        assert steps[-1] == b"HDGT\4"
        sock.send_frames(wire.partition_request(partition.address(0)))
        head = wire.receive(sock, 35)
        length, magic, kind = struct.unpack(">IIB", head[:9])
        assert (magic, kind, head[25]) == (wire.MAGIC, 0, wire.PAGE)
        payload = wire.receive(sock, length - 35)
        crc = struct.unpack(">I", head[31:])[0]
        assert crc ^ sock.mask == wire.crc32c(head[:31] + payload)


def test_a_version_that_is_not_spoken(served):
    _, partition = served
    with wire.connect(partition.address(0)) as sock:
        sock.sendall(wire.hello(versions=(7, 9)))
        answer = wire.receive(sock, 10)
        assert answer == b"HDGT\5" + struct.pack(">BHH", 1, wire.VERSION, wire.VERSION)
        assert wire.is_closed(sock)


class Answering:
    """A listener that answers each connection in the same way."""

    def __init__(self, answer):
        self.answered = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.getsockname = self._listener.getsockname
        self._serving = Task(self._serve)

    def _serve(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            with sock:
                sock.settimeout(20)
                self._answer(sock, wire.receive(sock, 86))
                assert wire.receive(sock, 1) == b"", "a proof for a peer that proved nothing"
            self.answered += 1

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._serving.result()


def rejects(sock, greeting):
    sock.sendall(b"HDGT\5" + struct.pack(">BHH", 1, 7, 9))


def chooses(sock, greeting):
    sock.sendall(b"HDGT\2" + struct.pack(">H", 9) + bytes(84))


def is_another_program(sock, greeting):
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def has_another_secret(sock, greeting):
    challenge = b"HDGT\2" + struct.pack(">H16sI32s", wire.VERSION, b"p" * 16, 65536, b"n" * 32)
    proof = hmac.digest(wire.derive(bytes(32)), wire.SERVER + greeting + challenge, "sha256")
    sock.sendall(challenge + proof)


@pytest.mark.soak
def test_a_producer_that_proves_nothing_is_dialed_until_the_deadline(environment, served):
    """All at the same time. The error is that of the answers, not of the deadline."""
    _, partition = served
    expected = {
        rejects: (errors.VersionError, "here 2-2, there 7-9"),
        chooses: (errors.VersionError, "here 2-2, there 9-9"),
        is_another_program: (errors.HandshakeError, "does not speak Headgate's protocol"),
        has_another_secret: (errors.HandshakeError, "the same exchange, run, epoch and secret"),
    }
    answering = [Answering(answer) for answer in expected]
    readings = [read_from(environment(), partition, each) for each in answering]
    for reading, each, (kind, words) in zip(readings, answering, expected.values(), strict=True):
        error = reading.error()
        assert type(error) is kind
        assert words in str(error)
        each.close()
        assert each.answered > 5


def read_from(consumer, partition, listener):
    host, port = listener.getsockname()
    address = partition.address(0)
    address = hg.ChannelAddress(host, port, address.partition_id, 0, bytes(16), address.schema)
    gate = consumer.create_input_gate([address])
    return Task(drain, gate)


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(86),
        b"HDGT\2" + bytes(86),
        b"HDGT\xff" + bytes(600),
        b"\x16\x03\x01" + bytes(500),
    ],
    ids=["http", "zeros", "wrong turn", "unknown kind", "tls"],
)
def test_garbage_is_cut_off(environment, served, greeting):
    producer, partition = served
    with wire.connect(partition.address(0)) as sock:
        sock.sendall(greeting)
        assert wire.is_closed(sock, 2)
    assert producer.stats()["segments"]["held"] <= 2
    read(environment, partition)


def test_a_proof_that_is_wrong(environment, served):
    _, partition = served
    sock, steps = wire.consumer(partition.address(0), bytes(32))
    with sock:
        assert steps[-1] == b"HDGT\5"
        assert wire.is_closed(sock, 2)
    read(environment, partition)


def test_a_replayed_handshake_is_refused(environment, served):
    _, partition = served
    sock, steps = wire.consumer(partition.address(0), SECRET)
    sock.close()
    greeting, _, proof, accept = steps
    assert accept == b"HDGT\4"
    with wire.connect(partition.address(0)) as sock:
        sock.sendall(greeting)
        challenge = wire.receive(sock, 91)
        assert len(challenge) == 91
        sock.sendall(proof)
        assert wire.receive(sock, 10)[:5] == b"HDGT\5"
        assert wire.is_closed(sock, 2)
    read(environment, partition)


def test_reflected_messages_are_refused(served):
    producer, partition = served
    for claims in ({"process": producer.process_id}, {"role": 2}, {"role": 0}):
        with wire.connect(partition.address(0)) as sock:
            sock.sendall(wire.hello(**claims))
            assert wire.receive(sock, 10)[:5] == b"HDGT\5"
            assert wire.is_closed(sock, 2)


def test_another_process_at_the_address(environment, served):
    _, partition = served
    fake = wire.Producer(SECRET, lambda sock, channel: None)
    address = partition.address(0)
    address = hg.ChannelAddress(
        fake.host, fake.port, address.partition_id, 0, address.process_id, address.schema
    )
    gate = environment().create_input_gate([address])
    error = Task(drain, gate).error(5)
    fake.close()
    assert isinstance(error, errors.HandshakeError)
    assert "another process" in str(error)
    assert fake.request == b""


def test_a_handshake_byte_by_byte(served):
    _, partition = served
    with wire.connect(partition.address(0)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = wire.hello()
        for byte in greeting:
            sock.sendall(bytes([byte]))
        assert len(wire.receive(sock, 91)) == 91


@pytest.mark.soak
def test_slowloris_is_dropped_and_delays_no_one(environment, served):
    # The dialing side drops a silent server at the same deadline, so one wait tests both.
    producer, partition = served
    started = time.monotonic()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        wire.connect(partition.address(0)) as silent,
        wire.connect(partition.address(0)) as half,
    ):
        dialing = read_from(environment(), partition, listener)
        half.sendall(wire.hello()[:43])
        while time.monotonic() - started < DEADLINE - 2:
            assert dialing.running
            other = producer.create_result_partition(1, schema=NUMBERS)
            with hg.RecordWriter(other) as writer:
                writer.emit(numbers(100))
            read(environment, other)
            half.sendall(b"\0")
            time.sleep(0.5)
        assert wire.is_closed(half)
        assert wire.is_closed(silent)
        assert time.monotonic() - started > DEADLINE - 0.5
        error = dialing.error()
    assert isinstance(error, errors.HandshakeError)
    assert "no proof within 12 s" in str(error)
    read(environment, partition)


def test_more_half_open_connections_than_are_kept(environment, served):
    producer, partition = served
    held = [wire.connect(partition.address(0)) for _ in range(3 * MAX_PENDING)]
    try:
        read(environment, partition)
        wait_until(lambda: sum(ended(sock) for sock in held) >= 2 * MAX_PENDING)
        # The oldest connections are closed first.
        assert all(ended(sock) for sock in held[:MAX_PENDING])
        assert not ended(held[-1])
    finally:
        for sock in held:
            sock.close()
    assert producer.stats()["segments"]["held"] <= 2


def ended(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_forged_secret_among_many(environment, served):
    producer, partition = served
    for number in range(50):
        sock, steps = wire.consumer(partition.address(0), bytes([number]) * 32)
        with sock:
            assert steps[-1] == b"HDGT\5"
            sock.close()
    read(environment, partition)
    wait_until(lambda: producer.stats()["segments"]["held"] == 0)
