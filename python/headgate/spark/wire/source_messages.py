"""The messages between a source's readers and its enumerator, as fields of bounded messages.

Decision: ADR 0008.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import SourceError
from headgate.source.api import SourceEvent
from headgate.spark.wire.messages import (
    MAX_BYTES,
    MAX_EVENT_NAME,
    MAX_MESSAGE,
    MAX_SPLIT_ID,
    MAX_SPLITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Bytes of a message that its splits may fill.
_ROOM: Final = MAX_MESSAGE - 1024


def assignments(
    source: str, version: int, splits: Iterable[tuple[str, bytes]]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of as few ASSIGN messages as these splits need.

    Raises:
        SourceError: a split does not fit a message.
    """
    rows = [_split(source, split_id, data) for split_id, data in splits]
    for chunk in _chunks(rows):
        yield {"version": version, "splits": chunk}


def assigned(splits: Iterable[Sequence[str]]) -> list[tuple[str, bytes]]:
    """Return the splits of an ASSIGN message."""
    return [(split_id, base64.b64decode(data)) for split_id, data in splits]


def finished(ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of as few SPLITS_FINISHED messages as these ids need."""
    for chunk in _chunks(list(ids)):
        yield {"ids": chunk}


def event_fields(source: str, event: SourceEvent) -> dict[str, str]:
    """Return the fields of a SOURCE_EVENT message.

    Raises:
        SourceError: the event does not fit a message.
    """
    if len(event.name) > MAX_EVENT_NAME:
        raise _too_large(source, f"an event's name of {len(event.name)} characters", MAX_EVENT_NAME)
    if len(event.payload) > MAX_BYTES:
        what = f"event {event.name!r} with {len(event.payload)} bytes"
        raise _too_large(source, what, MAX_BYTES)
    return {"name": event.name, "payload": base64.b64encode(event.payload).decode()}


def event_of(fields: Any) -> SourceEvent:
    """Return the event of a SOURCE_EVENT message."""
    return SourceEvent(fields["name"], base64.b64decode(fields["payload"]))


def _split(source: str, split_id: str, data: bytes) -> list[str]:
    if len(split_id) > MAX_SPLIT_ID:
        what = f"a split whose id has {len(split_id)} characters ({split_id[:60]}...)"
        raise _too_large(source, what, MAX_SPLIT_ID)
    if len(data) > MAX_BYTES:
        raise _too_large(source, f"split {split_id!r} with {len(data)} bytes", MAX_BYTES)
    return [split_id, base64.b64encode(data).decode()]


def _chunks(rows: list[Any]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for row in rows:
        more = len(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")) + 1
        if chunk and (size + more > _ROOM or len(chunk) == MAX_SPLITS):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += more
    if chunk:
        yield chunk


def _too_large(source: str, what: str, limit: int) -> SourceError:
    return SourceError(
        f"source {source!r} sends {what}; at most {limit} fit a message",
        remedy="smaller splits and events: say where the data is, not the data",
    )
