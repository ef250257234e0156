"""Versioned serializers of splits and checkpoints, which also read older versions."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from headgate.errors import StateVersionError

T = TypeVar("T")
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

Upgrade = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class SimpleVersionedSerializer(ABC, Generic[T]):
    """Writes values in its own version, and reads them in this or an older version."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version that :meth:`serialize` writes; stored beside the bytes."""

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the bytes of a value."""

    @abstractmethod
    def deserialize(self, version: int, data: bytes) -> T:
        """Return the value that ``serialize`` of that version wrote.

        Raises:
            StateVersionError: the version is unknown, or the bytes do not belong to it.
        """


class JsonSerializer(SimpleVersionedSerializer[T]):
    """Serializes a dataclass of plain values (numbers, strings, lists, dicts, None) as JSON.

    Args:
        kind: the dataclass.
        version: the version of its current fields.
        upgrades: old version -> a function from its fields to those of the *next* version.
    """

    def __init__(
        self, kind: type[T], version: int = 1, upgrades: Mapping[int, Upgrade] | None = None
    ) -> None:
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"{kind.__name__} is no dataclass")
        self._kind = kind
        self._names = tuple(field.name for field in dataclasses.fields(kind))
        self._version = version
        self._upgrades = dict(upgrades or {})

    @property
    def version(self) -> int:
        """The version of the current fields."""
        return self._version

    def serialize(self, value: T) -> bytes:
        """Return the fields as JSON."""
        return _JSON.encode({name: getattr(value, name) for name in self._names}).encode()

    def deserialize(self, version: int, data: bytes) -> T:
        """Return the value, with fields of an older version upgraded one version at a time.

        A field that is a list becomes a tuple, so that frozen dataclasses stay hashable.

        Raises:
            StateVersionError: the version is unknown, or the bytes do not belong to it.
        """
        wanted, have = f"version {version}", f"{self._kind.__name__} of version {self._version}"
        try:
            fields = json.loads(data)
            for step in range(version, self._version):
                fields = self._upgrades[step](fields)
            if version > self._version:
                raise KeyError(version)
            plain = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            return self._kind(**plain)
        except KeyError as error:
            raise StateVersionError(
                "stored state is of a version that this source cannot read", asked=wanted, have=have
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise StateVersionError(
                f"stored state is not what version {version} writes", asked=wanted, have=have
            ) from error
