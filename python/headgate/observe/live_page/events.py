"""The stream of server-sent events: the view of one run, once a second, to a bounded number of clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse

from headgate.observe.view import view

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from headgate.observe.state import Source, State

#: Clients that get events at the same time; others are refused.
MAX_CLIENTS: Final = 16
#: Seconds between two events.
PERIOD: Final = 1.0
#: Seconds that a client has to take an event.
PATIENCE: Final = 5.0


class Events:
    """The application at ``/events``. The state is asked for only while somebody looks, once for all of them.

    Args:
        source: returns the state.
        period: seconds between two events.
        patience: seconds that a client has to take an event.
    """

    def __init__(
        self, source: Source, *, period: float = PERIOD, patience: float = PATIENCE
    ) -> None:
        self._source = source
        self._period = period
        self._patience = patience
        #: Clients that get events now.
        self.clients = 0
        #: Clients that were too slow, since the start.
        self.dropped = 0
        self._state: State = {}
        self._events: dict[str, bytes] = {}
        self._events_at = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all streams. Any thread may call it."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its streams with it
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client goes, or is too slow."""
        if self.clients >= MAX_CLIENTS:
            busy = PlainTextResponse(f"{MAX_CLIENTS} pages are open already\n", 503)
            await busy(scope, receive, send)
            return
        self._loop = asyncio.get_running_loop()
        key = QueryParams(scope["query_string"]).get("run", "")
        self.clients += 1
        over: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(awaitable)
            for awaitable in (_left(receive), self._stopping.wait())
        ]
        try:
            if await self._send_all(key, send, over):
                await send({"type": "http.response.body", "body": b""})
            else:
                self.dropped += 1
                scope["state"]["abort"]()
        finally:
            self.clients -= 1
            for future in over:
                future.cancel()
            await asyncio.gather(*over, return_exceptions=True)

    async def _send_all(self, key: str, send: Send, over: list[asyncio.Future[Any]]) -> bool:
        """Send until one of the futures is done; return False if the client does not take the bytes."""
        head = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        while not any(future.done() for future in over):
            body = {"type": "http.response.body", "body": self._event(key), "more_body": True}
            try:
                await asyncio.wait_for(send(body), self._patience)
            except TimeoutError:
                return False
            await asyncio.wait(over, timeout=self._period, return_when=asyncio.FIRST_COMPLETED)
        return True

    def _event(self, key: str) -> bytes:
        """Return the event of now about a run. Clients that come within half a period share it."""
        now = asyncio.get_running_loop().time()
        if now - self._events_at > self._period / 2:
            self._events, self._events_at = {}, now
            self._state = self._source()
        if key not in self._events:
            self._events[key] = f"data: {dumps(view(self._state, key))}\n\n".encode()
        return self._events[key]


def dumps(value: Any) -> str:
    """Return compact JSON without a line break, in ASCII."""
    return json.dumps(value, separators=(",", ":"))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
