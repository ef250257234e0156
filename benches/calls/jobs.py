"""Headgate's jobs of the bench ``calls``, and their functions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
from benches.calls.client import ATTEMPTS, BACKOFF, TOO_MANY, Client, leave_pid, wait_of

from headgate.stream import CallContext, CallFunction, DataStream, Retry, RuntimeContext

ANSWERS = pa.schema([("id", pa.int64())])
RATE = 500
#: Of the service that all parts call.
SERVICE: dict[str, Any] = {
    "seed": 1,
    "latency": 0.2,
    "spread": 0.05,
    "rate": RATE,
    "burst": 100,
    "refusals": 0.05,
    "retry_after": 0.1,
    "errors": 0.01,
}
#: Worker processes, or slots of another engine, and the calls at a time of each.
TASKS, IN_FLIGHT = 2, 64


class Ask(CallFunction):
    """Calls the service once for each row.

    Args:
        url: of the service.
        pids: folder for the ids of processes that call; None if nobody wants them.
    """

    def __init__(self, url: str, pids: str | None = None) -> None:
        self._url, self._pids = url, pids

    def open(self, context: RuntimeContext) -> None:
        self._client = Client(self._url)
        if self._pids is not None:
            leave_pid(self._pids)

    async def call(self, row: dict[str, Any], context: CallContext) -> Any:
        status, headers, body = await self._client.post(json.dumps(row).encode(), context.call_id)
        if status == TOO_MANY:
            raise Retry("429", after=wait_of(headers))
        if status >= 400:
            raise ConnectionError(f"status {status}")
        return json.loads(body)

    async def close(self) -> None:
        await self._client.close()


def asked(numbers: DataStream, url: str, pids: str | None = None, **options: Any) -> DataStream:
    """Return the answers about a stream of numbers."""
    options = {"in_flight": IN_FLIGHT, "ordered": False, "name": "calls", **options}
    return numbers.map_async(
        Ask(url, pids), schema=ANSWERS, retries=ATTEMPTS, backoff=BACKOFF, **options
    )


async def after_a_moment(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.001)
    return row


async def at_once(rows: Any) -> Any:
    return rows


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def forget(batch: pa.RecordBatch) -> None:
    """Take rows, which the service counts."""
