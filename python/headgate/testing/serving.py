"""The process of a :class:`~headgate.testing.Service`: HTTP/1.1 on this machine alone, with faults drawn from a seed.

It is run as a file, and needs nothing but the standard library, so that it answers in little time.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import socket
import struct
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from hashlib import blake2b
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any, Final, cast

HOST: Final = "127.0.0.1"
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
#: Statuses of errors by chance.
_ERRORS: Final = (500, 502, 503)
#: Most bytes of a request's head, and of its body.
_HEAD, _BODY = 64 << 10, 256 << 20
#: Connections that wait to be accepted.
_BACKLOG: Final = 4096
#: Seconds of calls at the rate that may come at once, unless ``burst`` says how many.
_BURST: Final = 0.1
_NO_REQUEST: Final = b"a request of HTTP/1.1 needs a Content-Length of at most 256 MiB"
#: In the place of a call's number.
_NO_CALL: Final = -1
#: Closes a connection by a reset.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Outcome(IntEnum):
    """How a call ended."""

    RUNNING = 0
    ANSWERED = 1
    ABANDONED = 2
    REPLAYED = 3
    REFUSED = 4
    LIMITED = 5
    OVER_QUOTA = 6
    FAILED = 7
    RESET = 8
    SILENT = 9
    CUT = 10


#: The texts of outcomes, by number.
OUTCOMES: Final = tuple(outcome.name.lower().replace("_", " ") for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the service behaves; see the arguments of :class:`~headgate.testing.Service`."""

    seed: int
    latency: float
    spread: float
    slow: float
    slow_factor: float
    rate: float | None
    key_rate: float | None
    burst: int | None
    quota: int | None
    refusals: float
    retry_after: float
    errors: float
    resets: float
    silent: float
    idempotent: bool
    key: str


@dataclass(frozen=True, slots=True)
class Request:
    """A call, for the function ``answer`` of a service.

    Attributes:
        method: such as ``"POST"``.
        path: with what follows a question mark.
        headers: by their names in small letters.
        body: as it came.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


class _Bucket:
    """Lets calls through at a rate.

    Args:
        rate: calls/s.
        burst: calls that may come at once; None for those of a moment.
    """

    def __init__(self, rate: float, burst: int | None) -> None:
        self._seconds = 1 / rate
        calls = max(1.0, rate * _BURST) if burst is None else burst
        self._ahead = (calls - 1) * self._seconds
        #: Time at which the next call would come if all came evenly.
        self._next = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until a call may come; 0 or less if it may come now."""
        return self._next - self._ahead - now

    def take(self, now: float) -> None:
        """Count a call."""
        self._next = max(self._next, now) + self._seconds


class _Connection(asyncio.Protocol):
    """One connection of a client: one call at a time, the next ones wait."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._is_last = self.is_lost = False
        self._transport: asyncio.Transport
        #: Number of the call under way, and its request.
        self.call = _NO_CALL
        self.request: Request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the client has left
        """Forget the connection. Its call goes on, as in a service that has begun to work."""
        self.is_lost = True
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Read the next request, if no call is under way."""
        self._buffer += data
        if self.call == _NO_CALL:
            self._read()

    def _read(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD:
                self._refuse()
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path, _, version = rest.rpartition(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "0")
        is_http = path and version.startswith("HTTP/1.") and length.isdecimal()
        if not is_http or "transfer-encoding" in headers or int(length) > _BODY:
            self._refuse()
            return
        start, stop = end + 4, end + 4 + int(length)
        if len(self._buffer) < stop:
            return
        body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        self._is_last = version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        self.request = Request(method, path, headers, body)
        self._server.begin(self)

    def _refuse(self) -> None:
        """Answer something that is no call, and end the connection."""
        self._is_last = True
        self.answer(HTTPStatus.BAD_REQUEST, _NO_REQUEST, "text/plain")

    def answer(self, status: int, body: bytes, kind: str, more: str = "") -> None:
        """Send an answer, and read the next request."""
        self.call = _NO_CALL
        if self.is_lost:
            return
        if self._is_last:
            more += "Connection: close\r\n"
        head = (
            f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n{more}\r\n"
        )
        self._transport.write(head.encode("latin-1") + body)
        if self._is_last:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self.data_received, b"")

    def reset(self) -> None:
        """End the connection without an answer."""
        raw = self._transport.get_extra_info("socket")
        if raw is not None and not self.is_lost:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()


@dataclass(slots=True)
class _Record:
    """All calls, in the order in which they came, column by column.

    Attributes:
        at: microseconds since 1970.
        seconds: until the end; NaN before it.
        statuses: of HTTP; 0 for none.
        outcomes: positions in OUTCOMES.
        paid: 1 for each call that is paid for.
        call_ids: the idempotency keys.
        keys: those of the clients, for the quota.
    """

    at: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    statuses: array[int] = field(default_factory=lambda: array("h"))
    outcomes: bytearray = field(default_factory=bytearray)
    paid: bytearray = field(default_factory=bytearray)
    call_ids: list[str | None] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def begin(self, call_id: str | None, key: str | None) -> int:
        """Add a call; return its number."""
        self.at.append(time.time_ns() // 1000)
        self.seconds.append(math.nan)
        self.statuses.append(0)
        self.outcomes.append(Outcome.RUNNING)
        self.paid.append(0)
        self.call_ids.append(call_id)
        self.keys.append(key)
        return len(self.outcomes) - 1

    def end(self, number: int, outcome: int, status: int = 0) -> None:
        """Say how a call ended."""
        self.outcomes[number] = outcome
        self.statuses[number] = status
        self.seconds[number] = time.time() - self.at[number] / 1e6

    def is_over(self, number: int) -> bool:
        """Return True if a call has ended."""
        return self.outcomes[number] != Outcome.RUNNING

    def columns(self) -> dict[str, Any]:
        """Return the columns by their names."""
        return {column.name: getattr(self, column.name) for column in fields(self)}


class _Server:
    """Decides what becomes of each call.

    Args:
        control: to the process that tests.
        behaviour: see there.
        answer: makes the answers; None to send back what came.
    """

    def __init__(
        self, control: Connection, behaviour: Behaviour, answer: Callable[[Request], Any] | None
    ) -> None:
        self._control, self._answer = control, answer
        self._record = _Record()
        self.connections: set[_Connection] = set()
        #: Calls of each content that were drawn for, and calls of each key that count for its quota.
        self._drawn: Counter[bytes] = Counter()
        self._used: Counter[str | None] = Counter()
        #: Idempotency keys that are paid for, if the service knows them again.
        self._paid: set[str] = set()
        self._ended = asyncio.Event()
        self._orders: set[asyncio.Task[None]] = set()
        self._port = 0
        self._change(behaviour)

    def begin(self, connection: _Connection) -> None:
        """Decide what becomes of a call: the same for the same bodies, in whatever order they come."""
        behaviour, headers = self._behaviour, connection.request.headers
        call_id, key = headers.get("idempotency-key"), headers.get(behaviour.key.lower())
        connection.call = self._record.begin(call_id, key)
        loop = asyncio.get_running_loop()
        now, buckets = loop.time(), self._buckets(key)
        wait = max((bucket.wait(now) for bucket in buckets), default=0.0)
        if behaviour.idempotent and call_id in self._paid:
            self._finish(connection, Outcome.ANSWERED)
        elif behaviour.quota is not None and self._used[key] >= behaviour.quota:
            self._refuse(connection, Outcome.OVER_QUOTA, None)
        elif wait > 0:
            self._refuse(connection, Outcome.LIMITED, wait)
        else:
            chance, moment, slowness, kind = self._draw(connection.request)
            if chance < behaviour.refusals:
                self._refuse(connection, Outcome.REFUSED, behaviour.retry_after)
                return
            self._used[key] += 1
            for bucket in buckets:
                bucket.take(now)
            seconds = max(0.0, behaviour.latency + behaviour.spread * (2 * moment - 1))
            if slowness < behaviour.slow:
                seconds *= behaviour.slow_factor
            outcome = self._outcome(chance - behaviour.refusals)
            status = _ERRORS[int(kind * len(_ERRORS))] if outcome == Outcome.FAILED else 0
            if outcome == Outcome.SILENT:
                self._record.end(connection.call, outcome)
            else:
                loop.call_later(seconds, self._finish, connection, outcome, status)

    def _outcome(self, chance: float) -> Outcome:
        """Return the outcome of a call by chance."""
        behaviour = self._behaviour
        for outcome, share in (
            (Outcome.FAILED, behaviour.errors),
            (Outcome.RESET, behaviour.resets),
            (Outcome.SILENT, behaviour.silent),
        ):
            if chance < share:
                return outcome
            chance -= share
        return Outcome.ANSWERED

    def _draw(self, request: Request) -> tuple[float, ...]:
        """Return numbers from 0 to 1 for a call, by its content and how often that came before."""
        if self._is_even:
            return 1.0, 0.5, 1.0, 0.0
        about = f"{request.method} {request.path}\n".encode()
        seed = self._behaviour.seed.to_bytes(8, "little")
        content = blake2b(about + request.body, digest_size=16, key=seed).digest()
        times = self._drawn[content]
        self._drawn[content] = times + 1
        drawn = blake2b(content + times.to_bytes(8, "little"), digest_size=32).digest()
        return tuple((value >> 11) / 2**53 for value in struct.unpack("<4Q", drawn))

    def _buckets(self, key: str | None) -> list[_Bucket]:
        """Return the buckets of all calls and of a key, as far as they have a rate."""
        rate, burst = self._behaviour.key_rate, self._behaviour.burst
        if rate is not None and key not in self._by_key:
            self._by_key[key] = _Bucket(rate, burst)
        of_key = self._by_key.get(key)
        return [bucket for bucket in (self._bucket, of_key) if bucket is not None]

    def _refuse(self, connection: _Connection, outcome: Outcome, wait: float | None) -> None:
        """Answer 429, with the time to wait if that helps."""
        status, more = HTTPStatus.TOO_MANY_REQUESTS, ""
        self._record.end(connection.call, outcome, status)
        if wait is not None:
            milliseconds = math.ceil(wait * 1000)
            more = f"Retry-After: {-(-milliseconds // 1000)}\r\nRetry-After-Ms: {milliseconds}\r\n"
        connection.answer(status, OUTCOMES[outcome].encode(), "text/plain", more)

    def _finish(self, connection: _Connection, outcome: Outcome, status: int = 0) -> None:
        """End a call whose time has passed, with an outcome by chance and the status of an error."""
        if self._record.is_over(connection.call):
            return  # it was cut
        body, kind = OUTCOMES[outcome].encode(), "text/plain"
        if outcome == Outcome.ANSWERED:
            status, body, kind = self._answered(connection.request)
            if status >= HTTPStatus.BAD_REQUEST:
                outcome = Outcome.FAILED
        if outcome != Outcome.FAILED:
            is_paid = self._pay(connection.call)
            if connection.is_lost:
                outcome, status = Outcome.ABANDONED, 0
            elif outcome == Outcome.ANSWERED and not is_paid:
                outcome = Outcome.REPLAYED
        self._record.end(connection.call, outcome, status)
        if outcome == Outcome.RESET:
            connection.reset()
        else:
            connection.answer(status, body, kind)

    def _pay(self, number: int) -> bool:
        """Write a call on the bill; return False if it is on it already."""
        call_id = self._record.call_ids[number]
        if self._behaviour.idempotent and call_id is not None:
            if call_id in self._paid:
                return False
            self._paid.add(call_id)
        self._record.paid[number] = 1
        return True

    def _answered(self, request: Request) -> tuple[int, bytes, str]:
        """Return the status, the body and its type."""
        if self._answer is None:
            kind = request.headers.get("content-type", "application/octet-stream")
            return HTTPStatus.OK, request.body, kind
        try:
            value, status = self._answer(request), int(HTTPStatus.OK)
            if isinstance(value, tuple):
                status, value = value
                if not isinstance(status, int) or not 200 <= status <= 599:
                    raise ValueError(f"{status!r} is no status")
            if isinstance(value, (bytes, bytearray)):
                return status, bytes(value), "application/octet-stream"
            if isinstance(value, str):
                return status, value.encode(), "text/plain; charset=utf-8"
            return status, json.dumps(value).encode(), "application/json"
        except Exception as error:  # noqa: BLE001 - the client sees it
            text = f"answer() raised {type(error).__name__}: {error}"
            return HTTPStatus.INTERNAL_SERVER_ERROR, text.encode(), "text/plain; charset=utf-8"

    async def run(self) -> None:
        """Serve until the process that tests closes the service, or ends."""
        loop = asyncio.get_running_loop()
        await self._listen()
        loop.add_reader(self._control.fileno(), self._take_order)
        self._control.send((True, self._port))
        await self._ended.wait()
        loop.remove_reader(self._control.fileno())
        self._cut()

    async def _listen(self) -> None:
        place = socket.create_server((HOST, self._port), backlog=_BACKLOG)
        self._port = place.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), sock=place, backlog=_BACKLOG
        )

    def _take_order(self) -> None:
        try:
            name, value = self._control.recv()
        except (EOFError, OSError):
            self._ended.set()  # the process that tests has ended
            return
        order = asyncio.get_running_loop().create_task(self._carry_out(name, value))
        self._orders.add(order)
        order.add_done_callback(self._orders.discard)

    async def _carry_out(self, name: str, value: Any) -> None:
        try:
            if name == "change":
                self._change(Behaviour(**value))
            elif name == "down":
                self._cut()
            elif name == "up":
                await self._listen()
            elif name == "close":
                self._cut()
                self._ended.set()
        except OSError as error:
            self._control.send((False, str(error)))
        else:
            has_calls = name in {"calls", "close"}
            self._control.send((True, self._record.columns() if has_calls else None))

    def _change(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        shares = (behaviour.refusals, behaviour.errors, behaviour.resets, behaviour.silent)
        self._is_even = not any((*shares, behaviour.slow, behaviour.spread))
        rate = behaviour.rate
        self._bucket = None if rate is None else _Bucket(rate, behaviour.burst)
        self._by_key: dict[str | None, _Bucket] = {}

    def _cut(self) -> None:
        """Listen no more, and reset all connections."""
        self._listener.close()
        for connection in list(self.connections):
            if connection.call != _NO_CALL and not self._record.is_over(connection.call):
                self._record.end(connection.call, Outcome.CUT)
            connection.reset()


async def _serve(control: Connection) -> None:
    options, answer = control.recv()
    function = None
    if answer is not None:
        try:
            function = pickle.loads(answer)  # noqa: S301 - our own parent wrote it
        except Exception as error:  # noqa: BLE001 - any error of the user's module
            control.send((False, f"{type(error).__name__}: {error}"))
            return
    try:
        await _Server(control, Behaviour(**options), function).run()
    except OSError as error:
        control.send((False, str(error)))


def main() -> None:
    """Serve, as the descriptor that is the argument says."""
    import resource  # noqa: PLC0415 - Windows has none

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Connection(int(sys.argv[1])) as control:
        sys.path[:] = control.recv()
        asyncio.run(_serve(control))


if __name__ == "__main__":
    main()
