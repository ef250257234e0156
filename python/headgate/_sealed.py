"""JSON with a version and a checksum: a bit that changed in a file is an error, not another fact."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

_VERSION: Final = 2


def seal(fields: Mapping[str, Any]) -> str:
    """Return the JSON of fields, with a version and a checksum."""
    body = {"version": _VERSION, **fields}
    return json.dumps({**body, "crc32": _checksum(body)}, separators=(",", ":"))


def unseal(text: str | bytes) -> dict[str, Any]:
    """Return the fields that :func:`seal` wrote.

    Raises:
        ValueError: the text is no such JSON, has another version, or has changed.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - the text is bad, not its type
    version = fields.get("version")
    if version != _VERSION:
        raise ValueError(f"it is of version {version}; this Headgate knows {_VERSION}")
    if fields.pop("crc32", None) != _checksum(fields):
        raise ValueError("it is damaged: its checksum does not match")
    del fields["version"]
    return fields


def _checksum(fields: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields).encode())
