"""The offsets of a streaming query: an enumerator's checkpoint, and the splits that led to it.

Spark writes an offset into its log before the batch runs, and after a crash asks for the partitions
between two offsets again. So an offset carries the splits of its own batch: they are the same ones
after any restart, whatever has been discovered meanwhile.

Decision: ADR 0009.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import StateVersionError

#: Of what :meth:`Offset.to_dict` writes.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StoredSplit:
    """A split as its source's serializer wrote it.

    Attributes:
        version: of the serializer.
        split_id: for errors.
        data: the bytes.
    """

    version: int
    split_id: str
    data: bytes

    def to_list(self) -> list[Any]:
        """Return plain values."""
        return [self.version, self.split_id, _text(self.data)]

    @staticmethod
    def from_list(stored: list[Any]) -> StoredSplit:
        """Return the split of plain values."""
        version, split_id, data = stored
        return StoredSplit(int(version), str(split_id), _bytes(data))


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a streaming query is.

    Attributes:
        number: of the batch that ends here; 0 is the beginning.
        checkpoint: the enumerator's, after it gave away ``splits`` and ``pending``; None at the
            beginning.
        splits: of the batch that ends here.
        pending: of later batches; what Trigger.AvailableNow found when it began is kept here.
    """

    number: int = 0
    checkpoint: bytes | None = None
    splits: tuple[StoredSplit, ...] = ()
    pending: tuple[StoredSplit, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as Spark stores them."""
        return {
            "version": VERSION,
            "number": self.number,
            "checkpoint": "" if self.checkpoint is None else _text(self.checkpoint),
            "splits": [split.to_list() for split in self.splits],
            "pending": [split.to_list() for split in self.pending],
        }

    @staticmethod
    def from_dict(stored: Any) -> Offset:
        """Return the offset of plain values.

        Raises:
            StateVersionError: they are not what this version writes.
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
