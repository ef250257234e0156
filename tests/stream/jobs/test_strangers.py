"""Strangers at the coordinator's port, and bytes that are no messages: the job goes on."""

import json
import os
import socket
from contextlib import suppress

import kit
import pytest
from kit import wait_until

from headgate import errors
from headgate.control.connection import WorkerConnection
from headgate.control.link import WorkerLink
from headgate.control.place import Place
from headgate.sink import FunctionSink
from headgate.stream.job.messages import CODEC, StreamMessage


@pytest.fixture
def query():
    """A job that runs until the end of the test."""
    counted = kit.numbers(10**9, rate=500).key_by("key").process(kit.Count, schema=kit.COUNTED)
    with counted.sink(FunctionSink(lambda batch: None)).start(parallelism=2) as running:
        wait_until(lambda: sum(task.rows for task in running.status.tasks))
        yield running


def place(query):
    return query._master._crew._place


def goes_on(query):
    rows = lambda: sum(task.rows for task in query.status.tasks)  # noqa: E731
    before = rows()
    wait_until(lambda: rows() > before)
    assert query.status.restarts == 0


def test_bytes_that_are_no_handshake_end_their_connection_only(query):
    with socket.create_connection(("127.0.0.1", place(query).port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        stranger.settimeout(20)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionResetError:
            pass
    goes_on(query)


def test_a_wrong_secret_is_refused(query):
    known = place(query)
    wrong = Place(known.host, known.port, known.exchange_id, os.urandom(32), 0.5)
    with pytest.raises((errors.HandshakeError, errors.CoordinatorError)):
        WorkerConnection(wrong, CODEC)
    goes_on(query)


def test_of_many_silent_connections_the_oldest_are_closed(query):
    port = place(query).port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    wait_until(lambda: len(query._master._crew._strangers) <= 64)
    silent[0].settimeout(20)
    assert silent[0].recv(1) == b""
    goes_on(query)
    for one in silent:
        one.close()


@pytest.mark.soak
@pytest.mark.parametrize("has_named", [False, True])
def test_a_worker_with_a_slow_link_gets_in_while_another_host_floods(query, has_named):
    """Its handshake takes longer than the flood needs to fill the room many times."""
    known = place(query)
    link = WorkerLink(known.key(), known.exchange_id, CODEC)
    flood = WorkerLink(known.key(), known.exchange_id, CODEC).output() if has_named else b""
    held = []
    with socket.create_connection((known.host, known.port), 5, ("127.0.0.2", 0)) as sock:
        while not link.established:
            for _ in range(300):
                stranger = socket.create_connection((known.host, known.port), 5, ("127.0.0.9", 0))
                with suppress(OSError):
                    stranger.sendall(flood)
                held.append(stranger)
                if len(held) > 100:
                    held.pop(0).close()
            link.written(sock.send(link.output()))
            if not link.pending:
                got = sock.recv(1000)
                assert got, "the worker was crowded out"
                link.receive(got)
    assert len(query._master._crew._strangers) <= 64 + 256
    for one in held:
        one.close()
    goes_on(query)


def test_a_worker_whose_number_the_job_does_not_have_is_sent_away(query):
    connection = WorkerConnection(place(query), CODEC)
    connection.send(StreamMessage("HELLO", {"worker": 99, "host": "here", "pid": 1}))
    with pytest.raises(errors.CoordinatorError):
        read_on(connection)
    connection.sock.close()
    goes_on(query)


def test_a_job_that_is_cancelled_while_its_worker_dials_ends_at_once():
    for _ in range(20):
        query = kit.numbers(10**9, rate=500).sink(FunctionSink(kit.same)).start()
        # Less than the time after which a worker is waited for no longer.
        query.cancel(timeout=20)
        assert query._master._done.is_set()


def read_on(connection):
    while True:
        connection.receive()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("NO_SUCH", {}),
        ("ENDED", {"attempt": 1}),
        ("ENDED", {"attempt": True, "task": [0, 0]}),
        ("ENDED", {"attempt": 1, "task": ["0", 0]}),
        ("ENDED", {"attempt": 1, "task": [0]}),
    ],
)
def test_messages_that_do_not_fit_are_refused_on_both_ends(kind, fields):
    with pytest.raises(errors.ProtocolError):
        CODEC.encode(StreamMessage(kind, fields))
    with pytest.raises(errors.ProtocolError):
        CODEC.decode(json.dumps({"kind": kind, **fields}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"kind": 1}', b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(errors.ProtocolError):
        CODEC.decode(data)
