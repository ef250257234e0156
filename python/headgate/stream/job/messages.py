"""The messages between a streaming job's coordinator and its workers, as bounded JSON.

No message is a pickle, so the coordinator never runs code that a worker sends. Bytes travel as base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.errors import ProtocolError

#: Most bytes of one message: the state of a task's source and the committables of its sinks are in it.
MAX_MESSAGE: Final = 64 << 20

#: kind -> its fields, with the types of their values in JSON.
FIELDS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    # worker -> coordinator
    "HELLO": {"worker": int, "host": str, "pid": int},
    "HEARTBEAT": {"control": str},
    "DEPLOYED": {"attempt": int, "partitions": list, "host": str, "port": int, "process": str},
    "ACKNOWLEDGED": {"attempt": int, "task": list, "checkpoint": int, "state": dict},
    "DECLINED": {"attempt": int, "task": list, "checkpoint": int, "reason": str},
    "ENDED": {"attempt": int, "task": list},
    "FINISHED": {"attempt": int, "task": list},
    "FAILED": {"attempt": int, "task": list, "cause": dict},
    "CANCELLED": {"attempt": int},
    "METRICS": {"attempt": int, "tasks": list},
    "SPLIT_REQUEST": {"attempt": int, "task": list, "host": str},
    "SPLITS_FINISHED": {"attempt": int, "task": list, "ids": list},
    "WATERMARK": {"attempt": int, "task": list, "ms": int},
    "SOURCE_EVENT": {"attempt": int, "task": list, "name": str, "payload": str},
    # coordinator -> worker
    "DEPLOY": {"attempt": int, "mode": str, "restored": (int, type(None)), "tasks": list},
    "CONNECT": {"attempt": int, "inputs": list},
    "TRIGGER": {
        "attempt": int,
        "stage": int,
        "checkpoint": int,
        "timestamp": int,
        "alignment": str,
        "timeout": int,
        "savepoint": (str, type(None)),
        "stop": bool,
    },
    "COMPLETE": {"attempt": int, "checkpoint": int, "savepoint": bool},
    "ABORT": {"attempt": int, "checkpoint": int, "reason": str},
    "ASSIGN": {"attempt": int, "task": list, "version": int, "splits": list},
    "NO_MORE_SPLITS": {"attempt": int, "task": list},
    "EVENT": {"attempt": int, "task": list, "name": str, "payload": str},
    "ALIGN": {"attempt": int, "task": list, "ms": int},
    "DRAIN": {"attempt": int},
    "FINISH": {"attempt": int},
    "CANCEL": {"attempt": int},
    "STOP": {},
}


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message.

    Attributes:
        kind: the key of its row in :data:`FIELDS`.
        fields: the values of its fields.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return one field."""
        return self.fields[name]


class StreamCodec:
    """The codec of control connections of streaming jobs."""

    max_message = MAX_MESSAGE

    def encode(self, message: StreamMessage) -> bytes:
        """Return the bytes of a message.

        Raises:
            ProtocolError: the message does not fit its row, or is too large.
        """
        _check(message.kind, message.fields)
        text = json.dumps({"kind": message.kind, **message.fields}, separators=(",", ":"))
        data = text.encode()
        if len(data) > MAX_MESSAGE:
            raise ProtocolError(
                f"a {message.kind} message has {len(data)} bytes, above {MAX_MESSAGE}",
                remedy="fewer splits, or smaller ones · more checkpoints, so that each has less",
            )
        return data

    def decode(self, data: bytes) -> StreamMessage:
        """Return the message in ``data``.

        Raises:
            ProtocolError: it is no JSON object, or does not fit its row.
        """
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise ProtocolError("a message of a streaming job is not JSON") from None
        if not isinstance(fields, dict):
            raise ProtocolError("a message of a streaming job is not a JSON object")
        kind = fields.pop("kind", None)
        _check(kind, fields)
        return StreamMessage(kind, fields)

    def is_last(self, message: StreamMessage) -> bool:
        """Return True for a HEARTBEAT, which names the control connection that the heartbeats are of."""
        return message.kind == "HEARTBEAT"


CODEC: Final = StreamCodec()


def text(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def data(of: str) -> bytes:
    """Return the bytes of a text."""
    return base64.b64decode(of, validate=True)


def _check(kind: Any, fields: Mapping[str, Any]) -> None:
    known = FIELDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ProtocolError(f"a streaming job has no message {str(kind)[:40]!r}")
    if set(fields) != set(known):
        raise ProtocolError(f"a {kind} message does not have the fields {', '.join(known)}")
    for name, types in known.items():
        value = fields[name]
        if not isinstance(value, types) or (isinstance(value, bool) and types is int):
            raise ProtocolError(f"a {kind} message has no valid {name}")
    task = fields.get("task")
    if task is not None and not (len(task) == 2 and all(type(n) is int for n in task)):
        raise ProtocolError(f"a {kind} message has no valid task")
