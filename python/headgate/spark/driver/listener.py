"""The driver's listening socket, which waits if this process has too many open files."""

from __future__ import annotations

import logging
import selectors
import socket
from typing import Final

from headgate.control.descriptors import NONE_LEFT
from headgate.spark.driver.logs import say

#: Seconds until the next try.
_PAUSE: Final = 0.1


class Listener:
    """Accepts connections for one selector.

    Args:
        bind_host: address to listen on.
        selector: gets the socket with ``data``.
        data: of the socket in the selector.
    """

    def __init__(self, bind_host: str, selector: selectors.BaseSelector, data: object) -> None:
        self._selector = selector
        self._data = data
        self._socket = socket.create_server((bind_host, 0), backlog=256)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        #: When to accept again; None while nothing is short.
        self._due: float | None = None
        #: True from the first failure until a connection was accepted.
        self._has_said = False
        selector.register(self._socket, selectors.EVENT_READ, data)

    def accept(self, now: float) -> tuple[socket.socket, str] | None:
        """Return the next connection and the address of its peer; None if there is none.

        Without a free descriptor the socket leaves the selector, which would report it at once again.
        """
        try:
            sock, address = self._socket.accept()
        except OSError as error:
            if error.errno in NONE_LEFT:  # the connection stays in the backlog
                self._pause(error, now)
            return None  # otherwise the peer gave up before we looked
        self._has_said = False
        return sock, address[0]

    def tick(self, now: float) -> None:
        """Listen again when it is time."""
        if self._due is not None and now >= self._due:
            self._due = None
            self._selector.register(self._socket, selectors.EVENT_READ, self._data)

    def timeout(self, idle: float) -> float:
        """Return how long the selector may wait, at most ``idle`` seconds."""
        return idle if self._due is None else min(idle, _PAUSE)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _pause(self, error: OSError, now: float) -> None:
        self._selector.unregister(self._socket)
        self._due = now + _PAUSE
        if not self._has_said:
            self._has_said = True
            words = (
                "the driver cannot accept connections of workers, and tries again every %g s: %s"
            )
            say(logging.ERROR, words, _PAUSE, error)
