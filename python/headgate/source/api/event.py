"""What enumerator and readers say to each other beyond splits: a name and bytes, never a pickle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """A message between an enumerator and a reader of the same source.

    Attributes:
        name: what it is, at most 200 characters.
        payload: its content; enumerator and reader agree how it is written. At most 32 KiB.
    """

    name: str
    payload: bytes = b""
