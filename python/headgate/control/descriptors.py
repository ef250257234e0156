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
#: The kernel's words for the first two of them, which libraries quote.
_WORDS: Final = os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)


def tells_shortage(text: str) -> bool:
    """Return True if the text of an error says that the limit of open files is reached."""
    return any(words in text for words in _WORDS)


def say_shortage_once(loop: asyncio.AbstractEventLoop, log: logging.Logger, words: str) -> None:
    """Log one line if an event loop cannot accept a connection; it tries again each second, with a line a try.

    Args:
        loop: of the server.
        log: gets the line.
        words: of the line, with a place for the error.
    """
    has_said = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal has_said
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in NONE_LEFT and "socket" in context:
            if not has_said:
                has_said = True
                log.error(words, error)
            return
        loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
