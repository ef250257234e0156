"""The bytes of a checkpoint of a local read."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.errors import StateVersionError

#: The kind of the bytes, and the version of their layout.
_KIND: Final = "headgate local read 1"


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """The state of the enumerator, and the unfinished splits of the readers.

    Attributes:
        enumerator: the coordinator's checkpoint.
        split_version: the version of the split serializer that wrote the splits.
        splits: ids and bytes of the readers' unfinished splits.
    """

    enumerator: bytes
    split_version: int
    splits: Sequence[tuple[str, bytes]]

    def to_bytes(self) -> bytes:
        """Return JSON, with bytes in base64."""
        fields = {
            "kind": _KIND,
            "enumerator": base64.b64encode(self.enumerator).decode(),
            "version": self.split_version,
            "splits": [[name, base64.b64encode(data).decode()] for name, data in self.splits],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LocalCheckpoint:
        """Return the checkpoint that :meth:`to_bytes` wrote.

        Raises:
            StateVersionError: the bytes are no complete checkpoint.
        """
        try:
            fields = json.loads(data)
            if fields["kind"] != _KIND:
                raise ValueError(fields["kind"])
            splits = [
                (str(name), base64.b64decode(split, validate=True))
                for name, split in fields["splits"]
            ]
            enumerator = base64.b64decode(fields["enumerator"], validate=True)
            return cls(enumerator, int(fields["version"]), splits)
        except (ValueError, TypeError, KeyError) as error:
            raise StateVersionError(
                "these bytes are no complete checkpoint of a local read",
                have=f"{len(data)} bytes that begin with {bytes(data[:8])!r}",
                remedy="pass the bytes that LocalRead.checkpoint() returned",
            ) from error
