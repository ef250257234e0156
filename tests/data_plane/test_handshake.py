"""A peer that cannot prove the secret gets no data and does not delay others."""

import hmac
import socket
import struct
import time

import pytest
import wire
from plane import NUMBERS, Task, assert_same, drain, numbers

import headgate as hg

errors = hg.errors
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


def test_equal_runs_and_epochs_meet(environment):
    claims = {"run": 2**32 - 1, "epoch": 7}
    producer, consumer = environment(**claims), environment(**claims)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100))
    gate = consumer.create_input_gate([partition.address(0)])
    assert_same(Task(drain, gate).result(), numbers(100))


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
