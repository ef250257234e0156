"""Sources by name: those that ship, registered ones, and any class that can be imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headgate._matches import close_matches
from headgate.errors import OptionError
from headgate.source.api import Source

#: A registered class with ``from_options``, or a registered source.
Registered = type[Source[Any, Any, Any]] | Source[Any, Any, Any]

#: The option that names the source.
OPTION: Final = "source"

#: name -> module, class, options that the name implies.
_SHIPPED: Final[dict[str, tuple[str, str, dict[str, str]]]] = {
    "arrow": ("headgate.source.files", "FileSource", {"format": "arrow"}),
    "csv": ("headgate.source.files", "FileSource", {"format": "csv"}),
    "delta": ("headgate.source.delta", "DeltaSource", {}),
    "files": ("headgate.source.files", "FileSource", {}),
    "iceberg": ("headgate.source.iceberg", "IcebergSource", {}),
    "json": ("headgate.source.files", "FileSource", {"format": "json"}),
    "kafka": ("headgate.source.kafka", "KafkaSource", {}),
    "nexmark": ("headgate.source.nexmark", "NexmarkSource", {}),
    "numbers": ("headgate.source.numbers", "NumberSequenceSource", {}),
    "parquet": ("headgate.source.files", "FileSource", {"format": "parquet"}),
    "rate": ("headgate.source.rate", "RateSource", {}),
    "socket": ("headgate.source.socket", "SocketSource", {}),
}


class Options(Mapping[str, str]):
    """Options whose names ignore case: Spark passes them in lower case.

    Args:
        options: values by name.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._names = {name.casefold(): name for name in options}

    def __getitem__(self, name: str) -> str:
        """Return the value of an option."""
        return self._options[self._names[name.casefold()]]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names as they were given."""
        return iter(self._options)

    def __len__(self) -> int:
        """Return the number of options."""
        return len(self._options)

    def __repr__(self) -> str:
        """Return the options in the form of a dict."""
        return repr(self._options)


def source_from_options(
    options: Mapping[str, str], registered: Mapping[str, Registered] | None = None
) -> Source[Any, Any, Any]:
    """Return the source that options describe.

    Args:
        options: values by name; ``source`` names one of ``registered``, one that ships, or a class
            as ``"package.module:Class"``. All other options belong to the source.
        registered: the caller's sources by name; they take precedence over those that ship.

    Raises:
        OptionError: there is no such source, or it does not take an option.
        NotBuiltError: the source cannot be described by options.
    """
    arguments = dict(options)
    names = [name for name in arguments if name.lower() == OPTION]
    wanted = (
        arguments.pop(names[0])
        if names
        else ("files" if arguments.keys() & {"path", "paths"} else "")
    )
    source = (registered or {}).get(wanted)
    if source is not None:
        return _instance(source, wanted, arguments)
    if wanted in _SHIPPED:
        module, name, implied = _SHIPPED[wanted]
        kind = getattr(importlib.import_module(module), name)
        return _from_options(kind, {**arguments, **implied})
    if ":" in wanted:
        return _from_options(_imported(wanted), arguments)
    sources = sorted({*_SHIPPED, *(registered or {})})
    near = close_matches(wanted, sources)
    raise OptionError(
        f"there is no source {wanted!r}" if wanted else "no source is named",
        asked=f"{OPTION}={wanted!r}" if wanted else ", ".join(sorted(arguments)) or "no options",
        have=", ".join(sources),
        remedy=" · ".join(
            [f'option("{OPTION}", "{name}")' for name in near or sources[:1]]
            + [f'option("{OPTION}", "package.module:Class")']
        ),
    )


def _instance(source: Registered, name: str, options: dict[str, str]) -> Source[Any, Any, Any]:
    if isinstance(source, type):
        return _from_options(source, options)
    if options:
        raise OptionError(
            f"source {name!r} was registered as an instance, which takes no options",
            asked=", ".join(sorted(options)),
            remedy="register its class",
        )
    return source


def _from_options(kind: Any, options: dict[str, str]) -> Source[Any, Any, Any]:
    make: Callable[[Mapping[str, str]], Source[Any, Any, Any]] = kind.from_options
    return make(Options(options))


def _imported(wanted: str) -> Any:
    module, _, name = wanted.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"source {wanted!r} cannot be imported",
            asked=f"{OPTION}={wanted!r}",
            have=str(error),
            remedy="install its package where driver and workers find it · register() its class",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Source)):
        raise OptionError(f"{wanted} is no Source", asked=f"{OPTION}={wanted!r}")
    return kind
