"""Bytes of control messages, changed anywhere: an error of that connection, and never of the coordinator.

``HEADGATE_TEST_FUZZ_SECONDS`` plays as long as it says, and ``HEADGATE_TEST_SEED`` is the first seed.
"""

import contextlib
import json
import logging
import os
import random
import socket
import struct
import time
from collections import Counter

from tests.driver.test_messages import EXAMPLES
from tests.kit.places import EXCHANGE, KEYS, OTHER, connected, serving, told
from tests.kit.waiting import wait_until

from headgate.control.link import WorkerLink
from headgate.control.messages import Message
from headgate.errors import ProtocolError
from headgate.spark.wire import CODEC

SECONDS = float(os.environ.get("HEADGATE_TEST_FUZZ_SECONDS", "0"))
FIRST = int(os.environ.get("HEADGATE_TEST_SEED", "0"))
KINDS = sorted(EXAMPLES)
#: Values that a field of JSON may have, most of them wrong for any field.
VALUES = [
    None, True, False, 0, 1, -1, 7, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, 0.5, -0.0, 1e400,
    "", "x", "0a" * 16, "\ud800", "\0", "é" * 3000, "AAEC", "A", [], [0], [[]], [["a", "AAEC"]],
    [["a", "AAEC", 1]], {}, {"kind": "OK"}, list(range(9000)), [[0, 1, 2]], [["h", 1, "0a" * 16]],
]  # fmt: skip
#: Pieces of JSON that a change may bring in.
PIECES = [
    b"[" * 9000,
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"9" * 40,
    b"1e9",
    b"NaN",
    b"\\ud83d",
    b"\xff",
]


def seeds(count):
    """Return the seeds of a test: so many, or as many as fit the time."""
    until = time.monotonic() + SECONDS
    number = FIRST
    while number < FIRST + count if not SECONDS else time.monotonic() < until:
        yield number
        number += 1


def sound(dice):
    """Return a message that fits its row."""
    kind = dice.choice(KINDS)
    return Message(kind, EXAMPLES[kind])


def changed(dice, data):
    """Return bytes with a few changes: of values of the JSON object, or anywhere."""
    if dice.random() < 0.5:
        body = json.loads(data)
        for _ in range(dice.randrange(1, 3)):
            name = dice.choice([*body, dice.choice(list(CODEC.table["HOSTS"])), "kind", "x"])
            if dice.random() < 0.2:
                body.pop(name, None)
            else:
                body[name] = dice.choice(VALUES)
        return json.dumps(body).encode()
    wrong = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(wrong) + 1)
        match dice.randrange(5):
            case 0 if at < len(wrong):
                wrong[at] ^= 1 << dice.randrange(8)
            case 1:
                wrong[at:at] = dice.choice(PIECES)
            case 2:
                del wrong[at : at + dice.randrange(1, 9)]
            case 3:
                wrong[at:at] = wrong[dice.randrange(len(wrong) + 1) :]
            case _:
                wrong[at:] = CODEC.encode(sound(dice))[dice.randrange(30) :]
    return bytes(wrong)


def test_changed_bytes_are_a_sound_message_or_a_protocol_error():
    words = Counter()
    for number in seeds(4_000):
        dice = random.Random(number)
        data = changed(dice, CODEC.encode(sound(dice)))
        try:
            message = CODEC.decode(data)
        except ProtocolError:
            words["refused"] += 1
            continue
        words[message.kind] += 1
        fields = CODEC.table[message.kind]
        assert all(name in fields and fields[name](value) for name, value in message.fields.items())
        assert CODEC.decode(CODEC.encode(message)) == message
    tries = words.total()
    print(f"{tries} changed messages: {dict(words)}")
    # Changes may leave a message sound: of a text, or of a number within its limits.
    assert words["refused"] > tries / 2
    assert set(words) > set(KINDS)


class Worker:
    """A worker of the other exchange, which has proved that it knows the secret."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = WorkerLink(KEYS[OTHER], OTHER, CODEC)
        while not self.link.established:
            while self.link.pending:
                self.link.written(self.sock.send(self.link.output()))
            self.link.receive(self.sock.recv(65536))
        while self.link.pending:
            self.link.written(self.sock.send(self.link.output()))

    def frame(self, body, number):
        """Return a frame of any bytes with its right tag."""
        return struct.pack(">I", len(body)) + body + self.link._tag(b"w", number, body)


def say(worker, dice, words):
    """Say a few things on one connection, and leave; the server has heard all of them."""
    stream = b""
    for number in range(dice.randrange(1, 7)):
        body, choice = CODEC.encode(sound(dice)), dice.random()
        if choice < 0.4:
            body = changed(dice, body)[: CODEC.max_message]
        frame = worker.frame(body, number)
        if choice > 0.97:
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        elif choice > 0.95:
            frame = struct.pack(">I", dice.randrange(1 << 32)) + frame[4:]
        stream += frame
        words["messages"] += 1
    if dice.random() < 0.1:
        stream = stream[: dice.randrange(len(stream))]
    # A server that has refused closes the connection, and its kernel may reset it.
    with contextlib.suppress(OSError):
        while stream:
            cut = dice.choice([1, 7, 100, 1 << 20])
            worker.sock.sendall(stream[:cut])
            stream = stream[cut:]
        worker.sock.shutdown(socket.SHUT_WR)
        while worker.sock.recv(65536):
            words["answers"] += 1


def test_workers_that_say_anything_cost_their_own_connection_only(caplog):
    words = Counter()
    with serving() as places:
        server = places.server
        for number in seeds(300):
            dice = random.Random(number)
            worker = Worker(server.port)
            with worker.sock:
                say(worker, dice, words)
            wrong = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
            assert not wrong, f"seed {number}: an error of the server's own: {wrong}"
            words["connections"] += 1
        words["refused"] = server._refused
        print(dict(words))
        assert words["connections"] / 5 < words["refused"] <= words["connections"]
        assert words["answers"] > words["connections"] / 20
        wait_until(lambda: not server.peers, "all connections were forgotten")
        with connected(places, EXCHANGE) as ours:
            assert told(ours) == ["HOSTS"]
        assert server._failures == 0
