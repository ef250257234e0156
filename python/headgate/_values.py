"""Parsers of the option kinds that are neither sizes nor durations."""

from __future__ import annotations

import os
from typing import Any


def parse_int(raw: Any) -> int:
    """Return a whole number, from a number or a string.

    Raises:
        TypeError: neither a string nor an integer.
        ValueError: the text is not a whole number.
    """
    if isinstance(raw, bool) or not isinstance(raw, (int, str)):
        raise TypeError("not a whole number")
    try:
        return int(raw)
    except ValueError:
        raise ValueError("not a whole number") from None


def parse_bool(raw: Any) -> bool:
    """Return True or False, from a bool or from ``"true"`` or ``"false"`` in any case.

    Raises:
        ValueError: any other value.
    """
    if isinstance(raw, bool):
        return raw
    text = raw.strip().lower() if isinstance(raw, str) else ""
    if text not in {"true", "false"}:
        raise ValueError("neither true nor false")
    return text == "true"


def parse_address(raw: Any) -> str:
    """Return ``"HOST:PORT"`` unchanged.

    Raises:
        ValueError: the host is missing, or the port is not from 0 to 65535.
    """
    host, colon, port = raw.rpartition(":") if isinstance(raw, str) else ("", "", "")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("not an address")
    return str(raw)


def parse_path(raw: Any) -> str:
    """Return a path as text, with the folder of the user for ``~``.

    Raises:
        TypeError: not a path.
        ValueError: an empty path.
    """
    path = os.fspath(raw) if isinstance(raw, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise TypeError("not a path")
    if not path:
        raise ValueError("an empty path")
    return os.path.expanduser(path)  # noqa: PTH111 - a text, which may be a URI


def parse_directories(raw: Any) -> tuple[str, ...]:
    """Return paths, from one path, a comma-separated string, or a list.

    Raises:
        TypeError: neither a path nor a list.
        ValueError: an empty list, an empty path, or an element that is not a path.
    """
    parts: list[Any]
    if isinstance(raw, str):
        parts = raw.split(",")
    elif isinstance(raw, os.PathLike):
        parts = [raw]
    elif isinstance(raw, (list, tuple)):
        parts = list(raw)
    else:
        raise TypeError("neither a path nor a list of paths")
    paths = [os.fspath(part) if isinstance(part, (str, os.PathLike)) else "" for part in parts]
    stripped = tuple(path.strip() if isinstance(path, str) else "" for path in paths)
    if not stripped or not all(stripped):
        raise ValueError("not a list of paths")
    return tuple(map(parse_path, stripped))
