"""sink_async(HttpPost(url)): bodies, names of requests, answers of all kinds, partial failures, and wrong arguments."""

import json
import socket
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime

import pyarrow as pa
import pytest
from tests.kit.waiting import wait_until

from headgate.errors import HeadgateError, OptionError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import CallContext, HttpPost, Refusal, Retry, stream
from headgate.stream.api import http_posts
from headgate.stream.operators.calls import answers
from headgate.testing import Service

CONTEXT = CallContext("a call", 1)


def numbers(count):
    return stream(NumberSequenceSource(0, count), parallelism=1)


def opened(url, **options):
    post = HttpPost(url, **options)
    post.open(None)
    return post


def show(request):
    return {"body": request.body.decode(), "headers": dict(request.headers)}


def test_bodies_are_arrays_lines_or_what_a_function_says():
    rows = pa.record_batch(
        {
            "text": ["a\nb\u2028", None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "vector": [[0.5, 1.0], []],
        }
    )
    expected = [
        {"text": "a\nb\u2028", "price": "1.50", "vector": [0.5, 1.0]},
        {"text": None, "price": None, "vector": []},
    ]
    answers = []
    with Service(show) as service:
        for options in (
            {},
            {"body": "lines", "headers": {"Api-Key": "k"}},
            {
                "body": lambda rows: {"ids": [row["vector"] for row in rows]},
                "headers": lambda: {"Content-Type": "text/x"},
            },
        ):
            post = opened(service.url, not_taken=answers.append, **options)
            assert post.call(rows, CONTEXT) is None
            post.close()
        assert service.ledger()["call_id"].to_pylist() == ["a call"]
    array, lines, vectors = (answer["body"] for answer in answers)
    assert json.loads(array) == expected
    assert [json.loads(line) for line in lines.split("\n")[:-1]] == expected
    assert json.loads(vectors) == {"ids": [[0.5, 1.0], []]}
    headers = [{k.lower(): v for k, v in answer["headers"].items()} for answer in answers]
    assert [of["content-type"] for of in headers] == [
        "application/json",
        "application/x-ndjson",
        "text/x",
    ]
    assert headers[1]["api-key"] == "k"


def say(request):
    return int(request.body.decode().strip("[]")), "because"


@pytest.mark.parametrize(
    ("status", "error"),
    [(200, None), (204, None), (400, Refusal), (404, Refusal), (422, Refusal), (301, Refusal)]
    + [(status, Retry) for status in (408, 425, 429, 500, 503, 599)],
)
def test_statuses_take_refuse_or_are_tried_again(status, error, monkeypatch):
    with Service(say) as service:
        post = opened(service.url, body=lambda _: status)
        rows = pa.record_batch({"id": [status]})
        if error is None:
            assert post.call(rows, CONTEXT) is None
        else:
            with pytest.raises(error, match=f"127.0.0.1 answered {status} .*because") as raised:
                post.call(rows, CONTEXT)
            assert type(raised.value) is error
        post.close()


def read_request(client):
    """Read the head of a request, and its body, which is sent behind it."""
    with client.makefile("rb") as stream:
        fields = [line.partition(b":") for line in iter(stream.readline, b"\r\n")]
        length = next(value for name, _, value in fields if name.lower() == b"content-length")
        assert len(stream.read(int(length))) == int(length)


def test_a_connection_is_used_again_and_opened_again_when_the_service_has_closed_it():
    """The server takes a request of each connection, closes it, and counts."""
    server, closes = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        for _ in range(2):
            client, _ = server.accept()
            for is_last in (False, True):
                read_request(client)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                closes.append(is_last)
            client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    post = opened(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=10)
    for number in range(4):
        assert post.call(pa.record_batch({"id": [number]}), CONTEXT) is None
        wait_until(lambda: len(closes) == number + 1)  # noqa: B023 - called at once
        if number == 1:
            wait_until(lambda: http_posts._has_ended(post._local.connection))
    post.close()
    thread.join(10)
    server.close()
    assert closes == [False, True] * 2


def test_a_service_says_how_long_to_wait():
    at = datetime.now(UTC) + timedelta(seconds=100)
    assert 97 <= answers.seconds_of(format_datetime(at, usegmt=True)) <= 100
    assert answers.seconds_of(format_datetime(at - timedelta(hours=1), usegmt=True)) == 0
    assert [answers.seconds_of(text) for text in ("7", " 7 ", "soon", None)] == [7, 7, None, None]


@pytest.mark.parametrize("idempotent", [True, False])
def test_each_row_gets_there_through_faults(idempotent):
    with Service(
        seed=3,
        refusals=0.1,
        retry_after=0,
        errors=0.1,
        resets=0.1,
        idempotent=idempotent,
    ) as service:
        job = numbers(1000).sink_async(
            HttpPost(service.url),
            batch_rows=25,
            batch_wait="1s",
            in_flight=4,
            retries=50,
            backoff="1ms",
            name="post",
        )
        with job.start(parallelism=1) as query:
            assert query.await_termination(60)
        ledger = service.ledger().to_pylist()
        figures = query.status.metrics["post"]
        assert figures["calls"]["value"] == sum(row["calls"] for row in ledger) > len(ledger)
        assert all(row["answered"] for row in ledger)
        assert len(ledger) == 40
        if idempotent:
            assert {row["paid"] for row in ledger} == {1}


def take_some(request):
    """Stand for a store that knows each row from its second time on."""
    ids = [row["id"] for row in request.json()]
    new = [at for at, key in enumerate(ids) if key % 7 == 0 and TIMES[key] == 0]
    TIMES.update(ids)
    if any(key == 5 for key in ids):
        return 400, "no fives"
    return {"failed": new}


TIMES = Counter()


def test_rows_that_are_not_taken_come_again_and_a_refusal_goes_to_its_sink():
    refused = []
    with Service(take_some) as service:
        job = numbers(700).sink_async(
            HttpPost(service.url, not_taken=lambda answer: answer["failed"]),
            batch_rows=50,
            batch_wait="1s",
            in_flight=1,
            backoff=0,
            refused=FunctionSink(refused.append),
            name="post",
        )
        with job.start(parallelism=1) as query:
            assert query.await_termination(60)
        assert query.status.metrics["post"]["rows_put_back"]["value"] > 0
        assert 14 <= service.ledger().num_rows <= 18
    rows = [row for batch in refused for row in batch.to_pylist()]
    assert 5 in {row["id"] for row in rows}
    assert {row["_attempts"] for row in rows} == {1}
    assert all("answered 400" in row["_error"] and "no fives" in row["_error"] for row in rows)


def test_a_column_that_json_cannot_have_is_refused_at_once():
    job = numbers(3).map(
        lambda batch: pa.record_batch({"id": pa.array([b"x"] * batch.num_rows)}),
        schema=pa.schema([("id", pa.binary())]),
    )
    with pytest.raises(HeadgateError, match="cannot hold column id"):
        job.sink_async(HttpPost("http://127.0.0.1:9/")).run(restarts=0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "ftp://a.example"},
        {"url": "service"},
        {"url": 3},
        {"url": "http://a.example:port/"},
        {"url": "http://[::1/"},
        {"url": "http://user:key@a.example/"},
        {"url": "http://a.example/a b"},
        {"headers": {"Api-Key": 1}},
        {"body": "csv"},
        {"body": lambda: None},
        {"headers": "Api-Key: 1"},
        {"not_taken": "failed"},
        {"timeout": 0},
    ],
)
def test_wrong_arguments_are_refused(arguments):
    (name,) = arguments
    with pytest.raises(OptionError, match=f"{name}="):
        HttpPost(**{"url": "http://a.example/", **arguments})
