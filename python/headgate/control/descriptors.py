"""A process, or its host, without a free file descriptor: it waits, and nothing else follows from it."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import logging

#: The kernel lacks what another connection needs.
NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: The kernel's messages for the first two of them, which libraries quote.
_MESSAGES: Final = os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)


def tells_shortage(text: str) -> bool:
    """Return True if the text of an error says that the limit of open files is reached."""
    return any(message in text for message in _MESSAGES)


def log_shortage_once(loop: asyncio.AbstractEventLoop, log: logging.Logger, text: str) -> None:
    """Log one line if an event loop cannot accept a connection; it tries again each second, with a line a try.

    Args:
        loop: of the server.
        log: gets the line.
        text: of the line, with a place for the error.
    """
    is_logged = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal is_logged
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in NONE_LEFT and "socket" in context:
            if not is_logged:
                is_logged = True
                log.error(text, error)
            return
        loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
