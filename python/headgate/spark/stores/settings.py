"""Hadoop's settings of a session. They come from the JVM as bytes, which py4j's log leaves out, as some are secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from headgate.errors import OptionError
from headgate.spark.py4j_logs import keep_secrets_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Self

#: File with Hadoop's defaults, as Hadoop names the source of a setting.
_DEFAULTS: Final = "core-default.xml"
#: A host, with or without a port.
HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:]+\])(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Settings:
    """Hadoop's settings by name. Some are secrets, so neither repr nor errors show values that are not looked for.

    Attributes:
        values: name -> value.
        defaults: names of the settings that have the value of Hadoop's defaults.
    """

    values: Mapping[str, str] = field(repr=False)
    defaults: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, configuration: Any, jvm: Any) -> Self:
        """Return the settings of a ``Configuration`` of Hadoop's.

        Raises:
            OptionError: A value has a character that XML cannot have.
        """
        keep_secrets_out()
        stream = jvm.java.io.ByteArrayOutputStream()
        configuration.writeXml(stream)
        values, defaults = {}, set()
        try:
            document = ET.fromstring(bytes(stream.toByteArray()))  # noqa: S314 - Hadoop has just written it
        except ET.ParseError as error:
            raise refusal(
                f"Hadoop's settings are no XML: {error}", "leave control characters out of values"
            ) from error
        for entry in document:
            name = entry.findtext("name", "")
            values[name] = entry.findtext("value", "")
            if entry.findtext("source", "") == _DEFAULTS:
                defaults.add(name)
        return cls(values, frozenset(defaults))

    def get(self, name: str, default: str = "") -> str:
        """Return a setting without blanks around it.

        Raises:
            OptionError: It has a variable, which only Hadoop replaces.
        """
        value = self.values.get(name, default).strip()
        if "${" in value:
            raise refusal(
                f"{name} has a variable of Hadoop's, ${{...}}",
                f"give {name} a value without a variable",
            )
        return value

    def is_true(self, name: str, default: bool) -> bool:
        """Return a setting that is true or false, as Hadoop reads it: another text is the default."""
        return {"true": True, "false": False}.get(self.get(name).lower(), default)

    def changed(self, prefix: str) -> Iterator[str]:
        """Yield the names with this prefix, in order, that do not have the value of Hadoop's defaults."""
        return (
            name
            for name in sorted(self.values)
            if name.startswith(prefix) and name not in self.defaults
        )

    def of_bucket(self, prefix: str, bucket: str) -> Settings:
        """Return the settings for a bucket: its own ones stand in for those of all buckets, as in S3A."""
        buckets = f"{prefix}bucket."
        of_this = f"{buckets}{bucket}."
        overrides = {
            f"{prefix}{rest}": value
            for name, value in self.values.items()
            if name.startswith(of_this)
            and (rest := name.removeprefix(of_this)) != "impl"
            and not rest.startswith("bucket.")
        }
        general = {
            name: value for name, value in self.values.items() if not name.startswith(buckets)
        }
        return Settings({**general, **overrides}, self.defaults - overrides.keys())


def only_known(
    settings: Settings,
    prefix: str,
    any_value: Collection[str],
    limited: Mapping[str, frozenset[str]],
    groups: tuple[str, ...],
) -> None:
    """Refuse settings with a name that is not known, or with another value than those that change no byte.

    Args:
        settings: of a store.
        prefix: beginning of the names, without which the others are given.
        any_value: names that may have any value.
        limited: name -> the values that it may have, in lower case.
        groups: beginnings of names that may have any value.
    """
    for name in settings.changed(prefix):
        short = name.removeprefix(prefix)
        if short not in any_value and short not in limited and not short.startswith(groups):
            raise refusal(f"{name} is set, and pyarrow has no such setting", f"unset {name}")
    for short, harmless in limited.items():
        name = f"{prefix}{short}"
        if (value := settings.get(name)).lower() not in harmless:
            raise refusal(
                f"{name} is {value}, which pyarrow cannot do", f"unset {name}", f"{name}={value}"
            )


def endpoint(settings: Settings, name: str, scheme: str) -> tuple[str, str]:
    """Return scheme and host, with its port, of a store's endpoint; no host if the setting is empty.

    Args:
        settings: of the store.
        name: of the setting.
        scheme: for an endpoint without one.
    """
    before, separator, host = settings.get(name).rstrip("/").rpartition("://")
    if separator:
        scheme = before.lower()
    if scheme not in {"http", "https"} or (host and not HOST.fullmatch(host)):
        raise refusal(f"{name} is no host with a port", f'{name}="http://host:9000"')
    return scheme, host


def refusal(summary: str, remedy: str, setting: str = "") -> OptionError:
    """Return the error for settings that pyarrow's file system cannot have. No argument may have a secret."""
    return OptionError(summary, asked=setting, remedy=remedy)
