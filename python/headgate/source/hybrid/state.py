"""Splits, checkpoints and events of a chain of sources, and their bytes."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import SourceError, StateVersionError
from headgate.source.api import SimpleVersionedSerializer, SourceEvent, SourceSplit

#: reader -> enumerator: the index of the source that the reader has finished; -1 at its start
FINISHED: Final = "hybrid.finished"
#: enumerator -> reader: the index of the next source
SWITCH: Final = "hybrid.switch"
#: enumerator -> reader: the index of a source, not the last one, without a further split
NO_MORE_SPLITS: Final = "hybrid.no_more_splits"
#: both ways: prefix of an event of one source; the source's index and the event's name follow
_INNER: Final = "hybrid.of."

_HEAD: Final = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class HybridSplit(SourceSplit):
    """A split of one source of the chain."""

    index: int
    split: SourceSplit

    @property
    def split_id(self) -> str:
        """The source's index and the split's own id, such as ``1:numbers[0:100]``."""
        return f"{self.index}:{self.split.split_id}"


@dataclass(frozen=True, slots=True)
class HybridCheckpoint:
    """The state of the chain.

    Attributes:
        index: the index of the current source.
        version: the version of ``state``.
        state: the state of that source's enumerator, written by its own serializer.
        earlier: lost readers' splits of earlier sources, written by
            :class:`HybridSplitSerializer`.
    """

    index: int
    version: int
    state: bytes
    earlier: Sequence[bytes] = ()


class HybridSplitSerializer(SimpleVersionedSerializer[HybridSplit]):
    """Writes the source's index, the version of its bytes (4 bytes each, big-endian), and these.

    Args:
        serializers: the serializers of the sources, in order.
    """

    def __init__(self, serializers: Sequence[SimpleVersionedSerializer[Any]]) -> None:
        self._serializers = serializers

    @property
    def version(self) -> int:
        """The version of this layout."""
        return 1

    def serialize(self, value: HybridSplit) -> bytes:
        """Return the bytes of a split."""
        inner = self._serializers[value.index]
        return _HEAD.pack(value.index, inner.version) + inner.serialize(value.split)

    def deserialize(self, version: int, data: bytes) -> HybridSplit:
        """Return the split.

        Raises:
            StateVersionError: the version is unknown, or the chain has no such source.
        """
        _check_version(version, self.version)
        if len(data) < _HEAD.size:
            raise _unreadable(f"{len(data)} bytes")
        index, inner_version = _HEAD.unpack_from(data)
        if index >= len(self._serializers):
            raise _unreadable(f"a split of source {index}; there are {len(self._serializers)}")
        return HybridSplit(
            index, self._serializers[index].deserialize(inner_version, data[_HEAD.size :])
        )


class HybridCheckpointSerializer(SimpleVersionedSerializer[HybridCheckpoint]):
    """Writes JSON, with the bytes of the sources in base64."""

    @property
    def version(self) -> int:
        """The version of the fields."""
        return 1

    def serialize(self, value: HybridCheckpoint) -> bytes:
        """Return the JSON."""
        fields = {
            "index": value.index,
            "version": value.version,
            "state": base64.b64encode(value.state).decode(),
            "earlier": [base64.b64encode(split).decode() for split in value.earlier],
        }
        return json.dumps(fields).encode()

    def deserialize(self, version: int, data: bytes) -> HybridCheckpoint:
        """Return the checkpoint.

        Raises:
            StateVersionError: the version is unknown, or the bytes do not belong to it.
        """
        _check_version(version, self.version)
        try:
            fields = json.loads(data)
            return HybridCheckpoint(
                int(fields["index"]),
                int(fields["version"]),
                base64.b64decode(fields["state"], validate=True),
                tuple(base64.b64decode(split, validate=True) for split in fields["earlier"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(f"{len(data)} bytes") from error


def index_event(name: str, index: int) -> SourceEvent:
    """Return an event of the chain with an index."""
    return SourceEvent(name, str(index).encode())


def index_of(event: SourceEvent) -> int:
    """Return the index in an event of the chain.

    Raises:
        SourceError: there is none.
    """
    try:
        return int(event.payload)
    except ValueError:
        raise SourceError(
            f"event {event.name} of a chain of sources has no index",
            have=f"payload {event.payload[:40]!r}",
        ) from None


def inner_event(index: int, event: SourceEvent) -> SourceEvent:
    """Return an event of one source as an event of the chain."""
    return SourceEvent(f"{_INNER}{index}.{event.name}", event.payload)


def parse_inner_event(event: SourceEvent) -> tuple[int, SourceEvent] | None:
    """Return the index and the event of one source; None for an event of the chain itself."""
    if not event.name.startswith(_INNER):
        return None
    index, dot, name = event.name[len(_INNER) :].partition(".")
    if not dot or not index.isdecimal():
        return None
    return int(index), SourceEvent(name, event.payload)


def _check_version(version: int, current: int) -> None:
    if version != current:
        raise StateVersionError(
            "stored state is of a version that HybridSource cannot read",
            asked=f"version {version}",
            have=f"version {current}",
        )


def _unreadable(have: str) -> StateVersionError:
    return StateVersionError("stored state is not what HybridSource writes", have=have)
