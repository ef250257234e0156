"""Keeps pickled functions and settings of stores, which have secrets, out of py4j's debug log."""

from __future__ import annotations

import logging
import re
from typing import Final

#: The loggers to which py4j writes each command and answer.
_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
#: Bytes in a command or an answer: a line that starts with their type, and has them in base64.
_BYTES: Final = re.compile(r"(^|!y)j([A-Za-z0-9+/=]{16,})$", re.MULTILINE)


class _WithoutBytes(logging.Filter):
    """Replaces bytes in a command or an answer by their number."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let each record pass, without bytes."""
        if isinstance(record.msg, str):
            record.msg = _BYTES.sub(
                lambda match: f"{match[1]}j<{len(match[2])} characters>", record.msg
            )
        return True


_FILTER: Final = _WithoutBytes()


def keep_bytes_out() -> None:
    """Write no bytes of commands and answers to py4j's log from here on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # which it has once, however often it is added
