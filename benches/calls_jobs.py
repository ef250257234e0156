"""Functions of the bench ``calls``: what calls the service, with Headgate and by hand."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from headgate.stream import CallContext, CallFunction, Retry, RuntimeContext

ANSWERS = pa.schema([("id", pa.int64())])
#: Attempts of a call, and seconds before the second one.
ATTEMPTS, BACKOFF = 1000, 0.1
TOO_MANY = 429
#: Most seconds beside what the service asks for, so that calls do not come all at once.
JITTER = 0.1


class Client:
    """Connections to a service, each of which is used again.

    Args:
        url: of the service.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, body: bytes, call_id: str) -> tuple[int, Mapping[str, str], bytes]:
        """Return the status, the headers and the body of an answer."""
        connect = asyncio.open_connection
        reader, writer = self._idle.pop() if self._idle else await connect(self._host, self._port)
        head = f"POST / HTTP/1.1\r\nIdempotency-Key: {call_id}\r\nContent-Length: {len(body)}"
        try:
            writer.write(head.encode() + b"\r\n\r\n" + body)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in map(parted, lines)}
            answer = await reader.readexactly(int(headers["content-length"]))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return int(first.split(" ")[1]), headers, answer

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()


def parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def wait_of(headers: Mapping[str, str]) -> float:
    """Return the seconds until the next attempt of a call that was refused."""
    return int(headers["retry-after-ms"]) / 1000 + random.uniform(0, JITTER)


class Ask(CallFunction):
    """Calls the service once for each row.

    Args:
        url: of the service.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, context: RuntimeContext) -> None:
        self._client = Client(self._url)

    async def call(self, row: dict[str, Any], context: CallContext) -> Any:
        status, headers, body = await self._client.post(json.dumps(row).encode(), context.call_id)
        if status == TOO_MANY:
            raise Retry("429", after=wait_of(headers))
        if status >= 400:
            raise ConnectionError(f"status {status}")
        return json.loads(body)

    async def close(self) -> None:
        await self._client.close()


def by_hand(url: str, most: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that does the same: calls in an event loop, most at a time, with attempts."""

    async def ask(client: Client, room: asyncio.Semaphore, row: dict[str, Any]) -> Any:
        async with room:
            for attempt in range(ATTEMPTS):
                status, headers, body = await client.post(
                    json.dumps(row).encode(), f"by-hand-{row['id']}"
                )
                if status < 400:
                    return json.loads(body)
                wait = BACKOFF * 2 ** min(attempt, 9) * random.uniform(0.5, 1)
                await asyncio.sleep(wait_of(headers) if status == TOO_MANY else wait)
            raise ConnectionError(f"status {status}")

    async def ask_all(rows: list[dict[str, Any]]) -> list[Any]:
        client, room = Client(url), asyncio.Semaphore(most)
        try:
            return await asyncio.gather(*(ask(client, room, row) for row in rows))
        finally:
            await client.close()

    def calls(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = asyncio.run(ask_all(batch.to_pylist()))
            yield pa.RecordBatch.from_pylist(answers, schema=ANSWERS)

    return calls


async def after_a_moment(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.001)
    return row


async def at_once(rows: Any) -> Any:
    return rows


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def forget(batch: pa.RecordBatch) -> None:
    """Take rows, which the service counts."""
