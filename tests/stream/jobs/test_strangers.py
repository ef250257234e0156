"""Strangers at the coordinator's port, and bytes that are no messages: the job goes on."""

import socket

import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Message
from headgate.sink import FunctionSink
from headgate.stream.job.messages import CODEC


@pytest.fixture
def query():
    """A job that runs until the end of the test."""
    counted = (
        stream_jobs.numbers(10**9, rate=500)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )
    with counted.sink(FunctionSink(lambda batch: None)).start(parallelism=2) as running:
        wait_until(lambda: sum(task.rows for task in running.status.tasks))
        yield running


def place(query):
    return query._master._workers._address


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


def test_a_worker_whose_number_the_job_does_not_have_is_sent_away(query):
    connection = WorkerConnection(place(query), CODEC)
    connection.send(
        Message("HELLO", {"worker": 99, "host": "here", "pid": 1, "memory_group": None})
    )
    with pytest.raises(errors.CoordinatorError):
        read_on(connection)
    connection.sock.close()
    goes_on(query)


def test_a_job_that_is_cancelled_while_its_worker_dials_ends_at_once():
    for _ in range(20):
        query = stream_jobs.numbers(10**9, rate=500).sink(FunctionSink(stream_jobs.same)).start()
        # Less than the time after which a worker is waited for no longer.
        query.cancel(timeout=20)
        assert query._master._done.is_set()


def read_on(connection):
    while True:
        connection.receive()
