"""The messages between a streaming job's coordinator and its workers, as bounded JSON.

No message is a pickle, so the coordinator never runs code that a worker sends. Bytes travel as base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import LIMITS
from headgate.errors import ProtocolError
from headgate.stream.job import shapes

if TYPE_CHECKING:
    from headgate.stream.job.shapes import Shape

#: Most bytes of one message: the state of a task's source and the committables of its sinks are in it.
MAX_MESSAGE: Final = 64 << 20

#: A task's part of a checkpoint.
_STATE: Final = shapes.fields(
    {
        "operators": shapes.by_name(
            shapes.fields(
                {},
                {
                    "committables": shapes.many(shapes.row(shapes.count, shapes.encoded)),
                    "state": shapes.row(shapes.name, shapes.count),
                    "watermark": shapes.whole,
                },
            )
        ),
        "channels": shapes.maybe(
            shapes.fields(
                {
                    "file": shapes.row(shapes.name, shapes.count, shapes.count),
                    "inputs": shapes.many(shapes.row(*[shapes.count] * 3)),
                    "outputs": shapes.many(shapes.row(*[shapes.count] * 4)),
                }
            )
        ),
        **dict.fromkeys(("in_flight", "bytes", "sync", "start_delay", "async"), shapes.count),
        "alignment": shapes.count,
    },
    {"splits": shapes.row(shapes.whole, shapes.many(shapes.row(shapes.name, shapes.encoded)))},
)
_FIGURES: Final = shapes.fields(
    {
        "task": shapes.task,
        **dict.fromkeys(("elapsed_ms", "rows", "batches", "busy_ms", "blocked_ms"), shapes.count),
        "watermark": shapes.maybe(shapes.whole),
    },
    {"dropped": shapes.by_name(shapes.by_name(shapes.count))},
)
_CAUSE: Final = shapes.fields(dict.fromkeys(LIMITS, shapes.words))
_ATTEMPT: Final[Mapping[str, Shape]] = {"attempt": shapes.count}
_TASK: Final[Mapping[str, Shape]] = {**_ATTEMPT, "task": shapes.task}
_EVENT: Final[Mapping[str, Shape]] = {
    **_TASK,
    "name": shapes.words,
    "payload": shapes.encoded,
}

#: kind -> its fields, with the shapes of their values in JSON.
FIELDS: Final[Mapping[str, Mapping[str, Shape]]] = {
    # worker -> coordinator
    "HELLO": {"worker": shapes.count, "host": shapes.name, "pid": shapes.count},
    "HEARTBEAT": {"control": shapes.words},
    "DEPLOYED": {
        **_ATTEMPT,
        "partitions": shapes.many(
            shapes.row(shapes.count, shapes.count, shapes.many(shapes.identity))
        ),
        "host": shapes.name,
        "port": shapes.port,
        "process": shapes.identity,
    },
    "ACKNOWLEDGED": {**_TASK, "checkpoint": shapes.count, "state": _STATE},
    "DECLINED": {**_TASK, "checkpoint": shapes.count, "reason": shapes.words},
    "ENDED": _TASK,
    "FINISHED": _TASK,
    "FAILED": {**_ATTEMPT, "cause": _CAUSE},
    "CANCELLED": _ATTEMPT,
    "METRICS": {**_ATTEMPT, "tasks": shapes.many(_FIGURES)},
    "SPLIT_REQUEST": {**_TASK, "host": shapes.name},
    "SPLITS_FINISHED": {**_TASK, "ids": shapes.many(shapes.name)},
    "WATERMARK": {**_TASK, "ms": shapes.whole},
    "SOURCE_EVENT": _EVENT,
    # coordinator -> worker
    "DEPLOY": {
        **_ATTEMPT,
        "alignment": shapes.name,
        "restored": shapes.maybe(shapes.count),
        "tasks": shapes.many(lambda one: isinstance(one, dict)),
    },
    "CONNECT": {**_ATTEMPT, "inputs": shapes.many(lambda one: isinstance(one, list))},
    "TRIGGER": {
        **_ATTEMPT,
        "stage": shapes.count,
        "checkpoint": shapes.count,
        "timestamp": shapes.count,
        "alignment": shapes.name,
        "timeout": shapes.count,
        "savepoint": shapes.maybe(shapes.name),
        "stop": shapes.flag,
    },
    "COMPLETE": {**_ATTEMPT, "checkpoint": shapes.count, "savepoint": shapes.flag},
    "ABORT": {**_ATTEMPT, "checkpoint": shapes.count, "reason": shapes.words},
    "ASSIGN": {
        **_TASK,
        "version": shapes.whole,
        "splits": shapes.many(shapes.row(shapes.name, shapes.encoded)),
    },
    "NO_MORE_SPLITS": _TASK,
    "EVENT": _EVENT,
    "ALIGN": {**_TASK, "ms": shapes.whole},
    "DRAIN": _ATTEMPT,
    "FINISH": _ATTEMPT,
    "CANCEL": _ATTEMPT,
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
    for name, shape in known.items():
        if not shape(fields[name]):
            raise ProtocolError(f"a {kind} message has no valid {name}")
