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

import pytest
from tests.driver import test_server
from tests.driver.actors import EXCHANGE, OTHER
from tests.driver.test_control_fuzz import OF_PRODUCERS
from tests.driver.test_messages import EXAMPLES
from tests.faults.patience import wait_until

from headgate.control.cause import CANCELLED
from headgate.errors import ProtocolError
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts, StageFacts
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing
from headgate.spark.wire.channel import WorkerLink, control_key
from headgate.spark.wire.messages import FIELDS, MAX_MESSAGE, MAX_NUMBER, Message, decode, encode

SECONDS = float(os.environ.get("HEADGATE_TEST_FUZZ_SECONDS", "0"))
FIRST = int(os.environ.get("HEADGATE_TEST_SEED", "0"))
KINDS = sorted(EXAMPLES)
#: Connections of workers that say anything, between two runs.
RENEWED = 10
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


def sound(dice, runs=(0,)):
    """Return a message that fits its row, with small numbers."""
    kind = dice.choice(KINDS)
    fields = {
        name: dice.randrange(4) if type(value) is int and name != "port" else value
        for name, value in EXAMPLES[kind].items()
    }
    return Message(kind, dice.choice(runs), dice.randrange(2), fields)


def changed(dice, data):
    """Return bytes with a few changes: of values of the JSON object, or anywhere."""
    if dice.random() < 0.5:
        body = json.loads(data)
        for _ in range(dice.randrange(1, 3)):
            name = dice.choice([*body, dice.choice(list(FIELDS["CONSUMER"])), "kind", "run", "x"])
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
                wrong[at:] = encode(sound(dice))[dice.randrange(30) :]
    return bytes(wrong)


def test_changed_bytes_are_a_sound_message_or_a_protocol_error():
    words = Counter()
    for number in seeds(4_000):
        dice = random.Random(number)
        data = changed(dice, encode(sound(dice)))
        try:
            message = decode(data)
        except ProtocolError:
            words["refused"] += 1
            continue
        words[message.kind] += 1
        fields = FIELDS[message.kind]
        assert all(type(n) is int and 0 <= n < MAX_NUMBER for n in (message.run, message.epoch))
        assert all(name in fields and fields[name](value) for name, value in message.fields.items())
        assert decode(encode(message)) == message
    tries = words.total()
    print(f"{tries} changed messages: {dict(words)}")
    # Changes may leave a message sound: of a text, or of a number within its limits.
    assert words["refused"] > tries / 2
    assert len(words) > len(KINDS) * 3 // 4


class OtherSide(test_server.Side):
    """Spark's side that keeps the runs of the hostile exchange apart."""

    def __init__(self):
        super().__init__()
        self.hostile = []

    def submit(self, run):
        (self.hostile if run.exchange_id == OTHER else self.submitted).append(run)

    def ended(self, run, cause):
        if run.exchange_id != OTHER:
            super().ended(run, cause)

    def ask_verdict(self, member):
        """Answer at once, as Spark does in the end."""
        super().ask_verdict(member)
        coordinator = self.server.coordinator
        self.server.post(lambda: coordinator.verdict(member, "FAILED", "its worker is gone"))

    def end_others(self, stage=None):
        """End the hostile exchange's stages and jobs, all but those of this stage."""
        coordinator = self.server.coordinator
        over = [key for key in coordinator.stages if key[0] == OTHER and key[1] != stage]
        coordinator.stage_facts({key: StageFacts("FAILED", 2, 0) for key in over})
        runs = [run for run in coordinator.runs.values() if run.exchange_id == OTHER]
        for run in runs if stage is None else runs[:-1]:
            for epoch in list(run.epochs.jobs.left):
                coordinator.job_ended(run.number, epoch, CANCELLED, set())

    def withdrawn(self, exchange_id):
        """Keep the exchange, which the test uses again."""


@pytest.fixture
def side():
    return OtherSide()


@pytest.fixture
def server(side):
    keys = {one: control_key(test_server.SECRET, one) for one in (EXCHANGE, OTHER)}
    server = Server("127.0.0.1", keys.get, lambda _: side, Retries(), Timing(quiet=0.05))
    for one in keys:
        server.coordinator.exchanges[one] = ExchangeFacts(2)
    side.server = server
    server.start()
    yield server
    server.stop()


class Worker:
    """A worker of the other exchange, which has proved that it knows the secret."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = WorkerLink(control_key(test_server.SECRET, OTHER), OTHER)
        while not self.link.established:
            while self.link.pending:
                self.link.written(self.sock.send(self.link.output()))
            self.link.receive(self.sock.recv(65536))
        while self.link.pending:
            self.link.written(self.sock.send(self.link.output()))

    def frame(self, body, number):
        """Return a frame of any bytes with its right tag."""
        return struct.pack(">I", len(body)) + body + self.link._tag(b"w", number, body)


def consumers(port, stage):
    """Return two sound consumers of the other exchange, with which a run begins."""
    workers = [Worker(port) for _ in range(2)]
    for index, worker in enumerate(workers):
        attempt = 100 * stage + index
        fields = {"stage": stage, "partition": index, "attempt": attempt, "index": index}
        worker.sock.sendall(worker.frame(encode(Message("CONSUMER", 0, 0, fields)), 0))
    return workers


def say(worker, dice, runs, words):
    """Say a few things on one connection, and leave; the server has heard all of them."""
    kinds, stream, run = [], b"", dice.choice(runs)
    for number in range(dice.randrange(1, 7)):
        message = sound(dice, runs)
        if number == 0 and dice.random() < 0.8:
            kind = dice.choice(["CONSUMER", "PRODUCER", "PRODUCER"])
            fields = EXAMPLES[kind] | {"attempt": dice.randrange(1 << 40)}
            message = Message(kind, run if kind == "PRODUCER" else 0, 0, fields)
        elif dice.random() < 0.6:
            kind = dice.choice(OF_PRODUCERS)
            message = Message(kind, run, 0, EXAMPLES[kind])
        body, choice = encode(message), dice.random()
        if choice < 0.15:
            body = changed(dice, body)[:MAX_MESSAGE]
        frame = worker.frame(body, number)
        if choice > 0.97:
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        elif choice > 0.95:
            frame = struct.pack(">I", dice.randrange(1 << 32)) + frame[4:]
        kinds.append(message.kind)
        stream += frame
    if dice.random() < 0.1:
        stream = stream[: dice.randrange(len(stream))]
    words["messages"] += len(kinds)
    # A server that has refused closes the connection, and its kernel may reset it.
    with contextlib.suppress(OSError):
        while stream:
            cut = dice.choice([1, 7, 100, 1 << 20])
            worker.sock.sendall(stream[:cut])
            stream = stream[cut:]
        worker.sock.shutdown(socket.SHUT_WR)
        while "HEARTBEAT" not in kinds and worker.sock.recv(65536):
            words["answers"] += 1


def test_workers_that_say_anything_end_no_other_exchange(server, side, caplog):
    words, sound_ones = Counter(), []
    for turn, number in enumerate(seeds(150)):
        dice = random.Random(number)
        if turn % RENEWED == 0:
            for one in sound_ones:
                one.sock.close()
            began = len(side.hostile) + 1
            sound_ones = consumers(server.port, stage=10 * (turn // RENEWED) + 10)
            wait_until(lambda n=began: len(side.hostile) >= n, "a run of the other exchange began")
        runs = [run.number for run in side.hostile[-2:]]
        worker = Worker(server.port)
        with worker.sock:
            say(worker, dice, runs, words)
        assert server.is_alive, f"seed {number}"
        wrong = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert not wrong, f"seed {number}: an error of the coordinator's own: {wrong}"
        words["connections"] += 1
        if turn % RENEWED == RENEWED - 1:
            server.post(lambda stage=10 * (turn // RENEWED) + 10: side.end_others(stage))
    for one in sound_ones:
        one.sock.close()
    words["refused"] = server._refused
    print(f"{dict(words)}, {len(side.killed)} tasks killed")
    assert words["connections"] / 5 < words["refused"] <= words["connections"]
    assert words["answers"] > words["connections"] / 20
    wait_until(lambda: not server._connections, "all connections were forgotten")
    server.post(lambda: server.coordinator.broke(OTHER, "the end of the test", ValueError()))
    server.post(side.end_others)
    wait_until(lambda: not server.coordinator.runs, "all runs were forgotten")
    assert not [member for member, _ in side.killed if member.exchange_id != OTHER]
    test_server.test_a_whole_run_over_sockets(server, side)
    assert server._failures == 0
