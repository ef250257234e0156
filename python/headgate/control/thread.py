"""A control server with an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate._closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.control.server import ControlServer

#: Seconds in which the thread has to end.
_CLOSE: Final = 5.0


class ControlThread(Closing):
    """Runs a server until it is closed. A daemon thread.

    Args:
        server: is closed with it.
        name: of the thread.
    """

    def __init__(self, server: ControlServer, name: str) -> None:
        self._server = server
        self._loop = asyncio.SelectorEventLoop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, action: Callable[[], object]) -> None:
        """Call an action on the thread; it is dropped once that has ended."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """Close all connections and wait for the thread. May be called twice."""
        self.call(self._stop.set)
        self._thread.join(_CLOSE)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        try:
            await self._server.start()
            await self._stop.wait()
        finally:
            await self._server.close()
