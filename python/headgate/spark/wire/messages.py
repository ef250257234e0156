"""The messages between the coordinator on the driver and the workers, as bounded JSON.

No message is a pickle, so the driver never runs code that a worker sends. Each message has a kind, a
run and an epoch, and exactly the fields of its row in :data:`FIELDS`. Bytes of a source (splits,
payloads of events) travel as base64.

Decision: ADR 0005.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Checks = dict[str, Callable[[Any], bool]]

#: Most bytes of one encoded message.
MAX_MESSAGE: Final = 64 * 1024
#: Most characters of a text in a message. JSON's escapes take up to six bytes per character.
MAX_TEXT: Final = 9_000
#: Most partitions that one message can name.
MAX_INDEXES: Final = 8_000
#: Most bytes of a split, and of the payload of a source's event.
MAX_BYTES: Final = 32 * 1024
#: Most characters of a split's id.
MAX_SPLIT_ID: Final = 2_000
#: Most characters of a host's name, as POSIX has it.
MAX_HOSTNAME: Final = 255
#: Most numbers of bytes that a producer tells, see headgate/observe/edges.py.
MAX_EDGES: Final = 64
#: Most characters of an event's name.
MAX_EVENT_NAME: Final = 200
#: Most splits, or ids of splits, in one message.
MAX_SPLITS: Final = 500
#: Above all numbers that Spark has as an int: of stages, partitions and their attempts.
MAX_NUMBER: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        kind: the key of its row in :data:`FIELDS`.
        run: number of the run, 0 while none is known.
        epoch: attempt of the run, 0 for the first.
        fields: the values of its fields.
    """

    kind: str
    run: int = 0
    epoch: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return one field."""
        return self.fields[name]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    return _is_count(value) and value < MAX_NUMBER


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")


def _is_indexes(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_INDEXES and all(map(_is_number, value))


def _is_hostname(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_HOSTNAME


def _is_edges(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_EDGES and all(map(_is_count, value))


def _is_ms(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_data(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 4 * (MAX_BYTES + 2) // 3:
        return False
    try:
        return len(base64.b64decode(value, validate=True)) <= MAX_BYTES
    except (binascii.Error, ValueError):
        return False


def _is_split_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_SPLIT_ID


def _is_event_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_EVENT_NAME


def _is_split(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and _is_split_id(value[0])
        and _is_data(value[1])
    )


def _is_splits(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_SPLITS and all(map(_is_split, value))


def _is_split_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_SPLITS and all(map(_is_split_id, value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_hosts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(host, list)
        and len(host) == 3
        and _is_text(host[0])
        and _is_port(host[1])
        and _is_id(host[2])
        for host in value
    )


def _is_placed(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 3 and all(map(_is_count, one)) for one in value
    )


def _is_port(value: Any) -> bool:
    return _is_count(value) and 0 < value < 1 << 16


_CAUSE: Final[Checks] = dict.fromkeys(
    ("code", "summary", "asked", "have", "remedy", "text", "where"), _is_text
)
_TOTALS: Final[Checks] = {
    "rows": _is_count,
    "bytes": _is_count,
    "pages": _is_count,
    "peak": _is_count,
}
#: Milliseconds of a task's thread by state, see timing.py, and of its environment's waits. At the end of a producer
#: also the bytes for each consumer. All are optional.
_SEEN: Final[Checks] = {
    **dict.fromkeys(("input_ms", "function_ms", "emit_ms", "blocked_ms"), _is_count),
    **dict.fromkeys(("memory_ms", "link_ms", "io_ms"), _is_count),
    "hostname": _is_hostname,
    "edges": _is_edges,
    "edges_each": _is_number,
}
_PLACE: Final[Checks] = {
    "host": _is_text,
    "port": _is_port,
    "partition_id": _is_id,
    "process_id": _is_id,
}

#: kind -> field -> check of its value.
FIELDS: Final[dict[str, Checks]] = {
    # worker -> coordinator
    "CONSUMER": {
        "stage": _is_number,
        "partition": _is_number,
        "attempt": _is_count,
        "index": _is_number,
    },
    "PRODUCER": {"stage": _is_number, "partition": _is_number, "attempt": _is_count},
    "REGISTERED": _PLACE,
    "PROGRESS": {"rows": _is_count, "bytes": _is_count, **_SEEN},
    "DONE": _TOTALS,
    "STOPPED": _TOTALS,
    "FAILED": _CAUSE,
    # after EPOCH_ENDED: a consumer waits for START, a producer's task is about to fail
    "READY": {},
    # after EPOCH_ENDED: the consumer has yielded rows, so its task fails
    "YIELDED": {},
    # worker -> coordinator: the only message of a heartbeat connection, with the token of the
    # control connection that it belongs to
    "HEARTBEAT": {"control": _is_id},
    # consumer of a kept exchange -> coordinator: where are its producers?
    "ASK_PLACES": {},
    # coordinator -> that consumer: hosts with port and process, then for some producers the attempt
    # and the index of its host; several messages, the last with is_last
    "PLACES": {"hosts": _is_hosts, "producers": _is_placed, "is_last": _is_flag},
    # consumer of a kept exchange -> coordinator: nobody listens where this host did
    "HOST_LOST": {"process": _is_id},
    # reader (a producer of a source) -> coordinator
    "READER": {"host": _is_text},
    "SPLIT_REQUEST": {"host": _is_text},
    "SPLITS_FINISHED": {"ids": _is_split_ids},
    "WATERMARK": {"ms": _is_ms},
    # both ways
    "SOURCE_EVENT": {"name": _is_event_name, "payload": _is_data},
    # coordinator -> reader
    "ASSIGN": {"version": _is_count, "splits": _is_splits},
    "NO_MORE_SPLITS": {},
    "ALIGN": {"ms": _is_ms},
    # coordinator -> consumer
    "START": {},
    "PARTITION": {"producer": _is_number, "attempt": _is_count, **_PLACE},
    "SEALED": {"producers": _is_number},
    # coordinator -> producer
    "WAIT": {},
    "GO": {"wanted": _is_indexes},
    "CONSUMER_GONE": {"index": _is_number},
    "FINISH": {},
    # coordinator -> both
    "EPOCH_ENDED": _CAUSE,
    "ABORT": _CAUSE,
    "OK": {},
}


def encode(message: Message) -> bytes:
    """Return the bytes of a message, at most :data:`MAX_MESSAGE`.

    Raises:
        ProtocolError: the message does not fit its row, or is too large.
    """
    _check(message.kind, message.run, message.epoch, message.fields)
    body = {"kind": message.kind, "run": message.run, "epoch": message.epoch, **message.fields}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a {message.kind} message has {len(data)} bytes, above {MAX_MESSAGE}")
    return data


def decode(data: bytes) -> Message:
    """Return the message in ``data``.

    Drops invalid fields of a PROGRESS message, which must never end a task's connection.

    Raises:
        ProtocolError: the message is too large, is no JSON object, or does not fit its row.
    """
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a message has {len(data)} bytes, above {MAX_MESSAGE}")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("a message is not JSON") from None
    if not isinstance(body, dict):
        raise ProtocolError("a message is not a JSON object")
    kind, run, epoch = body.pop("kind", None), body.pop("run", None), body.pop("epoch", None)
    if kind == "PROGRESS":
        checks = FIELDS[kind]
        body = {
            name: value for name, value in body.items() if name in checks and checks[name](value)
        }
    _check(kind, run, epoch, body)
    return Message(kind, run, epoch, body)


def _check(kind: Any, run: Any, epoch: Any, fields: Mapping[str, Any]) -> None:
    known = FIELDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ProtocolError(f"unknown message {repr(kind)[:40]}")
    if not _is_number(run) or not _is_number(epoch):
        raise ProtocolError(f"a {kind} message without run and epoch")
    if not set(fields) <= set(known) or (len(fields) < len(known) and kind != "PROGRESS"):
        raise ProtocolError(f"a {kind} message does not have the fields {', '.join(known)}")
    for name, fits in known.items():
        if name in fields and not fits(fields[name]):
            raise ProtocolError(f"a {kind} message has no valid {name}")
