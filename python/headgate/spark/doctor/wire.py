"""The messages between the doctor on the driver and its tasks: JSON objects, never pickles."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from headgate.errors import ProtocolError

#: An object with its kind under ``"do"``.
Message: TypeAlias = dict[str, Any]


class JsonCodec:
    """Messages as JSON; the last one is never known, so the connection's end is the end."""

    #: A list of a thousand executors with their addresses fits.
    max_message: Final = 1 << 20

    def encode(self, message: Message) -> bytes:
        """Return the bytes of a message."""
        return json.dumps(message).encode("ascii")

    def decode(self, data: bytes) -> Message:
        """Return the message in ``data``.

        Raises:
            ProtocolError: it is no JSON object with a kind.
        """
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a message of the doctor that is no JSON: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("do"), str):
            raise ProtocolError("a message of the doctor that has no kind")
        return found

    def is_last(self, message: Message) -> bool:  # noqa: ARG002 - as a codec
        """Return False: frames follow all messages."""
        return False
