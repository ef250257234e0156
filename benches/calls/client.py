"""Calls of the service without Headgate, also in environments of other programs: a client, attempts, calls by hand."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

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
        #: In use. A transport refers to its reader weakly, and PyFlink keeps no task: without this the garbage collector
        #: takes a call that waits for its answer.
        self._busy: set[asyncio.StreamReader] = set()

    async def post(self, body: bytes, call_id: str) -> tuple[int, Mapping[str, str], bytes]:
        """Return the status, the headers and the body of an answer."""
        connect = asyncio.open_connection
        reader, writer = self._idle.pop() if self._idle else await connect(self._host, self._port)
        self._busy.add(reader)
        head = f"POST / HTTP/1.1\r\nIdempotency-Key: {call_id}\r\nContent-Length: {len(body)}"
        try:
            writer.write(head.encode() + b"\r\n\r\n" + body)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in map(parted, lines)}
            answer = await reader.readexactly(int(headers["content-length"]))
        except BaseException:
            writer.close()
            raise
        finally:
            self._busy.discard(reader)
        self._idle.append((reader, writer))
        return int(first.split(" ")[1]), headers, answer

    async def ask(self, number: int) -> int:
        """Return the answer about a number, after as many attempts as it takes."""
        for attempt in range(ATTEMPTS):
            status, headers, body = await self.post(
                json.dumps({"id": number}).encode(), str(number)
            )
            if status < 400:
                return int(json.loads(body)["id"])
            wait = BACKOFF * 2 ** min(attempt, 9) * random.uniform(0.5, 1)
            await asyncio.sleep(wait_of(headers) if status == TOO_MANY else wait)
        raise ConnectionError(f"status {status}")

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()


def parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def wait_of(headers: Mapping[str, str]) -> float:
    """Return the seconds until the next attempt of a call that was refused."""
    return int(headers["retry-after-ms"]) / 1000 + random.uniform(0, JITTER)


def leave_pid(folder: str) -> None:
    """Leave the id of this process, which makes calls, in a folder."""
    (Path(folder) / str(os.getpid())).touch()


async def ask_all(url: str, most: int, numbers: Sequence[int]) -> list[int]:
    """Return the answers about numbers, in their order, with so many calls at a time."""
    client, room = Client(url), asyncio.Semaphore(most)

    async def ask(number: int) -> int:
        async with room:
            return await client.ask(number)

    try:
        return await asyncio.gather(*map(ask, numbers))
    finally:
        await client.close()


def by_hand(
    url: str, most: int, pids: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow``: calls in an event loop, so many at a time, with attempts."""

    def calls(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_pid(pids)
        for batch in batches:
            answers = asyncio.run(ask_all(url, most, batch["id"].to_pylist()))
            yield pa.RecordBatch.from_arrays([pa.array(answers, pa.int64())], ["id"])

    return calls
