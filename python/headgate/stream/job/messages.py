"""The messages between a streaming job's coordinator and its workers. Bytes travel as base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from headgate.control import shapes
from headgate.control.cause import LIMITS
from headgate.control.messages import HEARTBEAT, Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.shapes import Shape

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
                    "left_out": shapes.flag,
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
_METRIC: Final = shapes.one_of(
    shapes.fields({"kind": shapes.text, "value": shapes.number}),
    shapes.fields(
        {
            "kind": shapes.text,
            "bounds": shapes.many(shapes.number),
            "counts": shapes.many(shapes.count),
            "sum": shapes.number,
        }
    ),
    shapes.fields(
        {
            "kind": shapes.text,
            "values": shapes.by_name(shapes.row(shapes.count, shapes.amount)),
            "last": shapes.text,
        }
    ),
)
_FIGURES: Final = shapes.fields(
    {
        "task": shapes.task,
        **dict.fromkeys(("elapsed_ms", "rows", "batches", "busy_ms", "blocked_ms"), shapes.count),
        "watermark": shapes.maybe(shapes.whole),
    },
    {
        "dropped": shapes.by_name(shapes.by_name(shapes.count)),
        "metrics": shapes.by_name(shapes.by_name(_METRIC)),
        "state_sizes": shapes.by_name(shapes.by_name(shapes.count)),
    },
)
_MEMORY_GROUP: Final = shapes.fields(
    {
        **dict.fromkeys(("host", "folder"), shapes.text),
        **dict.fromkeys(("device", "inode", "kills"), shapes.count),
        "limit": shapes.maybe(shapes.count),
    }
)
_CAUSE: Final = shapes.fields(dict.fromkeys(LIMITS, shapes.text))
_ATTEMPT: Final[Mapping[str, Shape]] = {"attempt": shapes.count}
_TASK: Final[Mapping[str, Shape]] = {**_ATTEMPT, "task": shapes.task}
_EVENT: Final[Mapping[str, Shape]] = {
    **_TASK,
    "name": shapes.text,
    "payload": shapes.encoded,
}

#: kind -> its fields, with the shapes of their values in JSON.
FIELDS: Final[Mapping[str, Mapping[str, Shape]]] = {
    # worker -> coordinator
    "HELLO": {
        "worker": shapes.count,
        "host": shapes.name,
        "pid": shapes.count,
        "memory_group": shapes.maybe(_MEMORY_GROUP),
    },
    HEARTBEAT: {"control": shapes.text},
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
    "DECLINED": {**_TASK, "checkpoint": shapes.count, "reason": shapes.text},
    "ENDED": _TASK,
    "FINISHED": _TASK,
    "FAILED": {**_ATTEMPT, "cause": _CAUSE},
    "CANCELLED": _ATTEMPT,
    "METRICS": {
        **_ATTEMPT,
        "tasks": shapes.many(_FIGURES),
        "peak_resident_bytes": shapes.count,
        "lock_wait_us": shapes.count,
    },
    "TOKENS_WANTED": {
        **_TASK,
        "operator": shapes.name,
        "values": shapes.many(shapes.row(shapes.text, *[shapes.count] * 4)),
    },
    "SPLIT_REQUEST": {**_TASK, "host": shapes.name},
    "SPLITS_FINISHED": {**_TASK, "ids": shapes.many(shapes.name)},
    "WATERMARK": {**_TASK, "ms": shapes.whole},
    "SOURCE_EVENT": _EVENT,
    # coordinator -> worker
    "DEPLOY": {
        **_ATTEMPT,
        "alignment": shapes.name,
        "restored": shapes.maybe(shapes.count),
        "tasks": shapes.many(lambda task: isinstance(task, dict)),
    },
    "CONNECT": {**_ATTEMPT, "inputs": shapes.many(lambda item: isinstance(item, list))},
    "TRIGGER": {
        **_ATTEMPT,
        "stage": shapes.count,
        "checkpoint": shapes.count,
        "timestamp": shapes.count,
        "alignment": shapes.name,
        "timeout": shapes.count,
        "savepoint": shapes.maybe(shapes.name),
        "stop": shapes.flag,
        "has_state": shapes.flag,
    },
    "COMPLETE": {**_ATTEMPT, "checkpoint": shapes.count, "savepoint": shapes.flag},
    "ABORT": {**_ATTEMPT, "checkpoint": shapes.count, "reason": shapes.text},
    "ASSIGN": {
        **_TASK,
        "version": shapes.whole,
        "splits": shapes.many(shapes.row(shapes.name, shapes.encoded)),
    },
    "NO_MORE_SPLITS": _TASK,
    "TOKENS": {
        **_TASK,
        "operator": shapes.name,
        "values": shapes.many(shapes.row(shapes.text, shapes.count)),
        "rate": shapes.amount,
    },
    "EVENT": _EVENT,
    "ALIGN": {**_TASK, "ms": shapes.whole},
    "DRAIN": _ATTEMPT,
    "FINISH": _ATTEMPT,
    "CANCEL": _ATTEMPT,
    "STOP": {},
}


CODEC: Final = Codec(
    FIELDS, MAX_MESSAGE, "fewer splits, or smaller ones · more checkpoints, so that each has less"
)


def to_base64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Return the bytes of a text."""
    return base64.b64decode(text, validate=True)
