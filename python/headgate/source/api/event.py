"""Messages between an enumerator and its readers, besides splits: a name and bytes, no pickle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """A message between an enumerator and a reader of the same source.

    Attributes:
        name: the kind of message, at most 200 characters.
        payload: the content, at most 32 KiB, in an encoding that enumerator and reader share.
    """

    name: str
    payload: bytes = b""
