"""Requests of HTTP that write rows. Decision: ADR 0060."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from headgate._arguments import duration, function, refuse, text
from headgate._kinds import kind_of
from headgate.sink.encoding import Encoding
from headgate.sink.text_files import JsonEncoder
from headgate.stream.graph.call_functions import CallContext, CallFunction, Refusal, Retry
from headgate.stream.operators.calls.answers import TOO_MANY, seconds_of

if TYPE_CHECKING:
    from headgate.stream.graph.context import RuntimeContext

#: Statuses that another attempt may change, beside those of 500 and more: Request Timeout, Too Early.
_PASSING: Final = frozenset({408, 425, TOO_MANY})
#: Most bytes of an answer in the text of an error.
_LONGEST: Final = 300
_TEXT: Final = Encoding("json", "none")
_HEADERS: Final = 'headers={"Api-Key": "..."} · headers=lambda: {"Api-Key": os.environ["KEY"]}'
_REMEDY: Final = 'body="array" · body="lines" · body=lambda rows: {"vectors": rows}'


class HttpPost(CallFunction):
    """Writes batches to a service by POST requests of JSON, for ``sink_async()``.

    Each request has the ``call_id`` of its call as ``Idempotency-Key``. A status of 2xx takes the rows. 429, 408, 425, 5xx, and lost
    connections lead to a further attempt, after ``Retry-After`` if the answer says so. Other statuses refuse the rows for good.

    Each call that is under way has a thread with a connection that stays open. Redirects are not followed, and no proxy is used.

    Args:
        url: of the service, with its query.
        body: ``"array"`` for a JSON array of the rows, ``"lines"`` for a line of JSON per row, both with decimals and times as texts; or a
            function that gets the rows as dicts, and returns what the JSON of the body is made of.
        headers: of each request; or a function that returns them, which each task calls when it begins, as for secrets.
        not_taken: gets what the JSON of an answer says, and returns the positions of rows that the service has not taken; None if an
            answer of 2xx means that all are taken.
        timeout: of a connection, and of each wait for the service, in seconds or as ``"30s"``.

    Raises:
        OptionError: an argument has a value that it does not take.

    Example:
        >>> from headgate.source import NumberSequenceSource
        >>> from headgate.stream import HttpPost, stream
        >>> from headgate.testing import Service
        >>> with Service() as service:
        ...     numbers = stream(NumberSequenceSource(0, 100), parallelism=1)
        ...     numbers.sink_async(HttpPost(service.url), batch_rows=50, batch_wait="1s").run()
        ...     print(service.ledger().num_rows, "requests")
        2 requests
    """

    def __init__(
        self,
        url: str,
        *,
        body: str | Callable[[list[dict[str, Any]]], Any] = "array",
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        not_taken: Callable[[Any], Any] | None = None,
        timeout: float | str = 30,
    ) -> None:
        address = _address(url)
        if callable(body):
            function("body", body, 1, _REMEDY)
        elif body not in ("array", "lines"):
            raise refuse("body", body, "is unknown", '"array", "lines" or a function', _REMEDY)
        if not callable(headers):
            _check_headers(headers)
        if not_taken is not None:
            function("not_taken", not_taken, 1, 'not_taken=lambda answer: answer["failed"]')
        self._is_secure, self._host, self._port, self._path = address
        self._body, self._headers, self._not_taken = body, headers, not_taken
        self._timeout = duration("timeout", timeout, 0.001)

    def open(self, context: RuntimeContext) -> None:  # noqa: ARG002 - as others
        """Get the headers."""
        headers = self._headers
        if callable(headers):
            headers = headers()
            _check_headers(headers)
        kind = "application/x-ndjson" if self._body == "lines" else "application/json"
        self._sent = {"Content-Type": kind, **(headers or {})}
        #: Has the connection of each thread.
        self._local = threading.local()
        self._connections: list[HTTPConnection] = []

    def call(self, rows: pa.RecordBatch, context: CallContext) -> Any:
        """Write the rows; return the positions of those that were not taken.

        Raises:
            Retry: another attempt may take them.
            Refusal: none will.
        """
        body = self._encoded(rows)
        status, reason, after, answer = self._request(
            body, {**self._sent, "Idempotency-Key": context.call_id}
        )
        if status in range(200, 300):
            return None if self._not_taken is None else self._not_taken(json.loads(answer))
        shown = answer[:_LONGEST].decode(errors="replace").strip()
        message = f"{self._host} answered {status} {reason}" + (f": {shown}" if shown else "")
        if status not in _PASSING and status < 500:
            raise Refusal(message)
        retry = Retry(message, seconds_of(after))
        retry.status = status  # type: ignore[attr-defined]  # a 429 lowers the rate, also without a time
        raise retry

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def _encoded(self, rows: pa.RecordBatch) -> bytes:
        if callable(self._body):
            return json.dumps(self._body(rows.to_pylist())).encode()
        lines = BytesIO()
        JsonEncoder(lines, rows.schema, _TEXT).write_table(pa.Table.from_batches([rows]))
        # No text of JSON has a line break in it.
        content = lines.getvalue()
        return content if self._body == "lines" else b"[" + content[:-1].replace(b"\n", b",") + b"]"

    def _request(
        self, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str, str | None, bytes]:
        """Return status, reason, Retry-After and content of the answer."""
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            of = HTTPSConnection if self._is_secure else HTTPConnection
            connection = self._local.connection = of(self._host, self._port, timeout=self._timeout)
            self._connections.append(connection)
        elif _has_ended(connection):
            connection.close()  # the next request opens it again
        try:
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.reason, answer.getheader("Retry-After"), answer.read()
        except (OSError, HTTPException):
            connection.close()
            raise


def _address(url: Any) -> tuple[bool, str, int | None, str]:
    """Return what an address of HTTP says: True for HTTPS, the host, the port, and the path with the query.

    Raises:
        OptionError: it is none.
    """
    try:
        parts = urlsplit(text("url", url))
        port, host = parts.port, parts.hostname
    except ValueError:
        host = None
    is_plain = isinstance(url, str) and url.isascii() and all(char > " " for char in url)
    if host is None or not is_plain or parts.scheme not in ("http", "https") or parts.username:
        takes = "an address of HTTP or HTTPS, without a user"
        raise refuse("url", url, "is none", takes, '"https://service.example/rows"')
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme == "https", host, port, path


def _check_headers(headers: Any) -> None:
    """Check what is sent with each request.

    Raises:
        OptionError: it is no mapping of texts.
    """
    if headers is None:
        return
    is_right = isinstance(headers, Mapping) and all(
        isinstance(part, str) for pair in headers.items() for part in pair
    )
    if not is_right:
        takes = "a mapping of texts, or a function that returns one"
        raise refuse("headers", headers, f"is {kind_of(headers)}", takes, _HEADERS)


def _has_ended(connection: HTTPConnection) -> bool:
    """Return True if the service has closed a connection that was not used for a while: its end can be read."""
    if connection.sock is None:
        return False
    polling = select.poll()
    polling.register(connection.sock, select.POLLIN)
    return bool(polling.poll(0))
