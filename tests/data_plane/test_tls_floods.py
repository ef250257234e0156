"""Strangers that flood a listener which requires TLS, before there is a session: all are dropped.

The bytes that such a stream may take are counted in ``rust_core/tls/src/stream.rs``.
"""

import contextlib
import os
import ssl
import struct
import time

import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers
from test_hostile_memory import ALLOWED, Watch
from wire import connect, is_closed

import headgate as hg

TLS = {"same_host_link": "off", "tls": "require"}
#: Seconds of a handshake.
DEADLINE = 12.0
HANDSHAKE = 22
#: Bytes that a flood may place: those that the kernel holds on both ends of a connection, and a few more.
PLACED = 64 << 20


@pytest.fixture
def served(environment):
    """Serve rows under TLS; afterwards they can still be read, and no memory was taken for strangers."""
    producer = environment(**TLS)
    partition = producer.create_result_partition(1, schema=NUMBERS, kind="blocking")
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1000))
    # All that a reader of it needs is in memory before strangers come.
    read(environment, partition.address(0))
    with Watch() as watch:
        yield producer, partition.address(0)
    read(environment, partition.address(0))
    assert watch.most < ALLOWED
    assert producer.stats()["segments"]["held"] <= 2


def read(environment, address):
    """Read the rows as a peer that knows the secret does."""
    gate = environment(**TLS).create_input_gate([address])
    assert_same(Task(drain, gate).result(), numbers(1000))
    gate.close()


def client_hello():
    """Return the first bytes that a client of TLS sends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(received, sent).do_handshake()
    return sent.read()


def record(kind, body):
    """Return a record of TLS in the clear."""
    return struct.pack(">BHH", kind, 0x0303, len(body)) + body


FLOODS = {
    "noise": os.urandom(1 << 16),
    "handshake records of noise": b"".join(record(HANDSHAKE, os.urandom(16_000)) for _ in range(4)),
    "a message without end": record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(16_000)),
    "a message in records of a byte": record(HANDSHAKE, b"\1\0\xff\xff")
    + record(HANDSHAKE, b"\0") * 70_000,
    "changes of cipher": record(20, b"\1") * 10_000,
    "warnings": record(21, b"\1\x5a") * 10_000,
}


def placed(sock, flood):
    """Send a flood until the peer closes the connection; return its bytes that left, at most about ``PLACED``."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < PLACED:
            sent += sock.send(flood)
    return sent


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_a_stranger_is_dropped(environment, served, kind):
    _, address = served
    with connect(address) as sock:
        assert placed(sock, FLOODS[kind]) < PLACED
    read(environment, address)


@pytest.mark.soak
def test_a_client_hello_byte_by_byte_has_the_deadline_of_a_handshake(environment, served):
    _, address = served
    greeting = client_hello()
    assert greeting[0] == HANDSHAKE
    started = time.monotonic()
    with connect(address) as sock:
        # Slow enough that it is not complete at the deadline.
        for byte in greeting[: len(greeting) // 2]:
            if time.monotonic() - started > DEADLINE - 2:
                break
            sock.sendall(bytes([byte]))
            time.sleep((DEADLINE - 2) / len(greeting))
        read(environment, address)
        assert is_closed(sock, 20)
        assert time.monotonic() - started > DEADLINE - 0.5
