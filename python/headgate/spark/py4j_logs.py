"""Keeps pickled functions and the settings of stores, which have secrets, out of py4j's debug log."""

from __future__ import annotations

import logging
import re
from typing import Final

#: The loggers to which py4j writes each command and answer.
_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
#: Bytes in a command or an answer: a line that starts with their type, and has them in base64.
_BYTES: Final = re.compile(r"(^|!y)j([A-Za-z0-9+/=]{16,})$", re.MULTILINE)
#: Beginnings of the names of stores' settings, each of which may stand before a secret.
_SETTINGS: Final = re.compile(r"spark\.hadoop\.|fs\.(?:s3a?|gs|azure)\.")
#: Characters of a text with settings that are written.
_HEAD: Final = 24


class _WithoutSecrets(logging.Filter):
    """Replaces bytes in a command or an answer by their number, and texts that have settings of Hadoop's."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let each record pass, without secrets."""
        text = record.msg
        if isinstance(text, str):
            record.msg = _BYTES.sub(lambda match: f"{match[1]}j<{len(match[2])} characters>", text)
            if _SETTINGS.search(text):
                record.msg = f"{text[:_HEAD]}<{len(text)} characters, with settings>"
        return True


_FILTER: Final = _WithoutSecrets()


def keep_secrets_out() -> None:
    """Write no secrets to py4j's log from here on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # which it has once, however often it is added
