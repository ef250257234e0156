"""Forged handshakes over TCP and TLS: none is accepted, little is read, and no memory grows.

``HEADGATE_TEST_FORGED`` is the number of tries for each link. The tries in memory, many more, are in
rust_core/protocol/tests/forged.rs.
"""

import contextlib
import hmac
import os
import random
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest
import wire
from plane import NUMBERS, SECRET, Task, assert_same, drain, numbers, wait_until

import headgate as hg

TRIES = int(os.environ.get("HEADGATE_TEST_FORGED", "140"))
#: Most bytes that a server reads before it answers, and those of an honest client.
MOST_READ, HONEST = 512, 86 + 37
#: Resident memory that the allocators of both ends of so many connections may take.
GROWTH = 4 << 20
FLOOD = bytes(64 << 10)

ACCEPT, REJECT = b"HDGT\4", b"HDGT\5"


def proof(key, *transcript):
    return b"HDGT\3" + hmac.digest(key, wire.CLIENT + b"".join(transcript), "sha256")


def another_secret(dice, greeting, challenge):
    return proof(wire.derive(dice.randbytes(32)), greeting, challenge)


def another_epoch(dice, greeting, challenge):
    return proof(wire.derive(SECRET, epoch=dice.randrange(1, 100)), greeting, challenge)


def near(dice, greeting, challenge):
    right = bytearray(proof(wire.derive(SECRET), greeting, challenge))
    right[dice.randrange(5, len(right))] ^= 1 << dice.randrange(8)
    return bytes(right)


def another_session(dice, greeting, challenge):
    """The right proof of another connection; under TLS, one of somebody in the middle."""
    return proof(wire.derive(SECRET), wire.hello(), challenge)


def reflected(dice, greeting, challenge):
    return b"HDGT\3" + challenge[-32:]


def noise(dice, greeting, challenge):
    return b"HDGT\3" + dice.randbytes(32)


def flood(dice, greeting, challenge):
    return b"HDGT\3" + dice.randbytes(32) + FLOOD


ANSWERS = (another_secret, another_epoch, near, another_session, reflected, noise, flood)


def connect(address, tls):
    sock = wire.connect(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock)


def forge(address, tls, answer, dice):
    """Play one forgery; return the last word of the server."""
    with connect(address, tls) as sock:
        greeting = wire.hello()
        if answer is flood and dice.random() < 0.5:
            greeting += FLOOD
        # A server that has refused closes the connection, also under a flood.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            sock.sendall(greeting)
            challenge = wire.receive(sock, 91)
            if len(challenge) == 91:
                sock.sendall(answer(dice, greeting[:86], challenge))
                return wire.receive(sock, 10)[:5]
        return b""


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_no_forged_handshake_is_accepted(environment, tls):
    options = {"same_host_link": "off", "tls": "require" if tls else "off"}
    producer = environment(**options)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100))
    address, dice, words = partition.address(0), random.Random(0), Counter()
    settled = None
    for number in range(TRIES):
        if number == TRIES // 2:
            settled = resident()
        answer = ANSWERS[number % len(ANSWERS)]
        words[answer.__name__, forge(address, tls, answer, dice)] += 1
    growth, stats = resident() - settled, producer.stats()
    print(
        f"{TRIES} forged handshakes, {growth >> 10} KiB grown, {stats['bytes_received']} bytes read"
    )
    for (name, word), count in sorted(words.items()):
        print(f"  {name:<16}{word!r:<12}{count:>7}")
    assert not [word for _, word in words if word == ACCEPT]
    for answer in ANSWERS[:-1]:
        assert words[answer.__name__, REJECT] == TRIES // len(ANSWERS), "a proof was checked"
    floods = TRIES // len(ANSWERS)
    assert stats["bytes_received"] <= floods * MOST_READ + (TRIES - floods) * HONEST
    assert stats["bytes_sent"] <= TRIES * (91 + 10)
    assert stats["connections"]["tcp"] == 0
    assert growth < GROWTH
    # The server still lets in the one who knows the secret, with the only segment that it holds.
    gate = environment(**options).create_input_gate([address])
    assert_same(Task(drain, gate).result(), numbers(100))
    wait_until(lambda: producer.stats()["segments"]["held"] == 0)
