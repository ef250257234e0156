"""The messages of control connections, as bounded JSON.

No message is a pickle, so a process never runs code that another one sends. A table has the kinds of messages of a service,
and the shape of each field; any other message ends its connection.

Decision: ADR 0005.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.shapes import Shape

#: The message that names the control connection whose heartbeats follow. No frame is behind it.
HEARTBEAT: Final = "HEARTBEAT"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        kind: the key of its row in the table.
        fields: the values of its fields.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return one field."""
        return self.fields[name]


@dataclass(frozen=True, slots=True)
class Codec:
    """The messages of one service, as bytes.

    Attributes:
        table: kind -> field -> shape of its value in JSON.
        max_message: most bytes of one message.
        remedy: for a message that is too large.
    """

    table: Mapping[str, Mapping[str, Shape]]
    max_message: int
    remedy: str = ""

    def encode(self, message: Message) -> bytes:
        """Return the bytes of a message.

        Raises:
            ProtocolError: the message does not fit its row, or is too large.
        """
        self._check(message.kind, message.fields)
        body = {"kind": message.kind, **message.fields}
        data = json.dumps(body, separators=(",", ":")).encode("ascii")
        if len(data) > self.max_message:
            raise ProtocolError(
                f"a {message.kind} message has {len(data)} bytes, above {self.max_message}",
                remedy=self.remedy,
            )
        return data

    def decode(self, data: bytes) -> Message:
        """Return the message in ``data``, whose size the connection has checked.

        Raises:
            ProtocolError: it is no JSON object, or does not fit its row.
        """
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise ProtocolError("a control message is not JSON") from None
        if not isinstance(fields, dict):
            raise ProtocolError("a control message is not a JSON object")
        kind = fields.pop("kind", None)
        self._check(kind, fields)
        return Message(kind, fields)

    def _check(self, kind: Any, fields: Mapping[str, Any]) -> None:
        row = self.table.get(kind) if isinstance(kind, str) else None
        if row is None:
            raise ProtocolError(f"unknown control message {repr(kind)[:40]}")
        if set(fields) != set(row):
            raise ProtocolError(f"a {kind} message does not have the fields {', '.join(row)}")
        for name, shape in row.items():
            if not shape(fields[name]):
                raise ProtocolError(f"a {kind} message has no valid {name}")
