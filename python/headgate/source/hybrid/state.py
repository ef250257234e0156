"""Splits and checkpoints of a chain of sources, their bytes, and what its two ends say."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import SourceError, StateVersionError
from headgate.source.api import SimpleVersionedSerializer, SourceEvent, SourceSplit

#: reader -> enumerator: the index of the source that it has finished, -1 at its beginning
FINISHED: Final = "hybrid.finished"
#: enumerator -> reader: the index of the source to go on with
SWITCH: Final = "hybrid.switch"
#: enumerator -> reader: the index of a source, not the last one, that has no more splits for it
NO_MORE_SPLITS: Final = "hybrid.no_more_splits"
#: both ways: an event of a source in the chain, its index and name following
_INNER: Final = "hybrid.of."

_HEAD: Final = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class HybridSplit(SourceSplit):
    """A split of one source of the chain."""

    index: int
    split: SourceSplit

    @property
    def split_id(self) -> str:
        """The number of the source and the split's own id, as ``1:numbers[0:100]``."""
        return f"{self.index}:{self.split.split_id}"


@dataclass(frozen=True, slots=True)
class HybridCheckpoint:
    """Where the chain stands.

    Attributes:
        index: of the source whose turn it is.
        version: of ``state``.
        state: of that source's enumerator, in the bytes of its own serializer.
        earlier: splits of earlier sources that lost readers had, in the bytes of
            :class:`HybridSplitSerializer`.
    """

    index: int
    version: int
    state: bytes
    earlier: Sequence[bytes] = ()


class HybridSplitSerializer(SimpleVersionedSerializer[HybridSplit]):
    """The number of the source and the version of its bytes (4 bytes each, big-endian), its bytes.

    Args:
        serializers: of the sources, in their order.
    """

    def __init__(self, serializers: Sequence[SimpleVersionedSerializer[Any]]) -> None:
        self._serializers = serializers

    @property
    def version(self) -> int:
        """The version of the bytes around those of the sources."""
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
    """JSON; the bytes of the sources in it as base 64."""

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
            StateVersionError: the version is unknown, or the bytes are not of it.
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
    """Return an event of the chain that tells an index."""
    return SourceEvent(name, str(index).encode())


def index_of(event: SourceEvent) -> int:
    """Return the index that an event of the chain tells.

    Raises:
        SourceError: it tells none.
    """
    try:
        return int(event.payload)
    except ValueError:
        raise SourceError(
            f"event {event.name} of a chain of sources tells no index",
            have=f"payload {event.payload[:40]!r}",
        ) from None


def inner_event(index: int, event: SourceEvent) -> SourceEvent:
    """Return an event of one source as an event of the chain."""
    return SourceEvent(f"{_INNER}{index}.{event.name}", event.payload)


def of_inner_event(event: SourceEvent) -> tuple[int, SourceEvent] | None:
    """Return index and event of one source; None for an event that is none."""
    if not event.name.startswith(_INNER):
        return None
    index, dot, name = event.name[len(_INNER) :].partition(".")
    if not dot or not index.isdecimal():
        return None
    return int(index), SourceEvent(name, event.payload)


def _check_version(version: int, known: int) -> None:
    if version != known:
        raise StateVersionError(
            "stored state is of a version that HybridSource cannot read",
            asked=f"version {version}",
            have=f"version {known}",
        )


def _unreadable(have: str) -> StateVersionError:
    return StateVersionError("stored state is not what HybridSource writes", have=have)
