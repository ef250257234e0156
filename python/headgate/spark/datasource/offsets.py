"""The offsets of a streaming query: an enumerator's checkpoint and the splits assigned before it.

Spark logs an offset before the batch runs, and after a crash asks again for the partitions between
two offsets. An offset therefore carries the splits of its own batch, so that a restart reads the
same splits even if more were discovered since.

Decision: ADR 0009.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import StateVersionError

#: Version of the form that :meth:`Offset.to_dict` writes.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StoredSplit:
    """A split in the serialized form of its source.

    Attributes:
        version: version of the serializer.
        split_id: id of the split, for error messages.
        data: the serialized split.
    """

    version: int
    split_id: str
    data: bytes

    def to_list(self) -> list[Any]:
        """Return values that JSON can hold."""
        return [self.version, self.split_id, _text(self.data)]

    @staticmethod
    def from_list(stored: list[Any]) -> StoredSplit:
        """Return the split that :meth:`to_list` wrote."""
        version, split_id, data = stored
        return StoredSplit(int(version), str(split_id), _bytes(data))


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a streaming query.

    Attributes:
        number: number of the batch that ends here; 0 at the beginning.
        checkpoint: state of the enumerator after it assigned ``splits`` and ``pending``; None at
            the beginning.
        splits: splits of the batch that ends here.
        pending: splits of later batches, which Trigger.AvailableNow discovered at its start.
    """

    number: int = 0
    checkpoint: bytes | None = None
    splits: tuple[StoredSplit, ...] = ()
    pending: tuple[StoredSplit, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold, for Spark's offset log."""
        return {
            "version": VERSION,
            "number": self.number,
            "checkpoint": "" if self.checkpoint is None else _text(self.checkpoint),
            "splits": [split.to_list() for split in self.splits],
            "pending": [split.to_list() for split in self.pending],
        }

    @staticmethod
    def from_dict(stored: Any) -> Offset:
        """Return the offset that :meth:`to_dict` wrote.

        Raises:
            StateVersionError: another version or another program wrote ``stored``.
        """
        if isinstance(stored, dict) and stored.get("version", VERSION) != VERSION:
            raise StateVersionError(
                "the query's checkpoint was written by another version of Headgate",
                asked=f"an offset of version {stored['version']!r}",
                have=f"version {VERSION}",
            )
        try:
            checkpoint = stored["checkpoint"]
            return Offset(
                int(stored["number"]),
                _bytes(checkpoint) if checkpoint else None,
                tuple(map(StoredSplit.from_list, stored["splits"])),
                tuple(map(StoredSplit.from_list, stored["pending"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StateVersionError(
                "the query's checkpoint holds an offset that Headgate did not write",
                asked=str(stored)[:200],
                remedy="the checkpointLocation that belongs to this query · a new one",
            ) from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
