"""Resolves the options of a call.

The value of an option comes from the first place that has one:

1. the call: ``memory="64m"``; ``None`` counts as not given
2. the session's conf: ``spark.headgate.memory``, in camelCase like Spark's own
3. the environment: ``HEADGATE_MEMORY``
4. the default
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate._matches import close_matches
from headgate._option_table import (
    CALLS,
    CONF_PREFIX,
    FORMER,
    OPTIONS,
    TLS_OPTIONS,
    Kind,
    Option,
    Scope,
    conf_of,
    variable_of,
)
from headgate._units import duration_text, parse_duration, parse_size, parse_timeout, size_text
from headgate._values import parse_address, parse_bool, parse_directories, parse_int, parse_path
from headgate.errors import OptionError


@dataclass(frozen=True, slots=True, eq=False)
class Options(Mapping[str, Any]):
    """The parsed values of all options of one call, and the source of each value."""

    values_by_name: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value: bytes for a size, seconds for a duration."""
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the table."""
        return iter(self.values_by_name)

    def __len__(self) -> int:
        """Return the number of options."""
        return len(self.values_by_name)


def resolve(
    scope: Scope,
    call: Mapping[str, Any],
    conf: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Options:
    """Return the values of all options of a scope.

    Args:
        scope: the call that takes the options.
        call: the call's keyword arguments; None counts as not given.
        conf: the session's conf; keys outside ``spark.headgate.`` are ignored.
        environ: environment variables; those of the process if not given.

    Raises:
        OptionError: an unknown name, or a value that its option does not take.
    """
    conf = conf or {}
    environ = os.environ if environ is None else environ
    table = {name: option for name, option in OPTIONS.items() if scope in option.scopes}
    _refuse_unknown(call, table, f"option of {CALLS[scope]}")
    ours = [key for key in conf if key.startswith(CONF_PREFIX)]
    _refuse_unknown(ours, {option.conf: option for option in OPTIONS.values()}, "conf")
    ours = [key for key in environ if key.startswith("HEADGATE_") and not key.startswith(_OTHERS)]
    variables = {option.variable: option for option in OPTIONS.values()}
    _refuse_unknown(ours, variables, "environment variable of Headgate")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, option in table.items():
        raw, source = _find(option, call, conf, environ)
        values[name] = None if raw is None else parse(option, raw, source)
        sources[name] = source
    _check_together(values, sources)
    return Options(values, sources)


def parse(option: Option, raw: Any, source: str = "argument") -> Any:
    """Return the parsed value of an option: bytes for a size, seconds for a duration.

    Raises:
        OptionError: the value cannot be parsed, or is outside the limits.
    """
    try:
        return _read_within_limits(option, raw)
    except (TypeError, ValueError) as error:
        near = close_matches(raw, option.choices) if isinstance(raw, str) else []
        former = option.former.get(raw) if isinstance(raw, str) else None
        remedies = [f'{option.name}="{choice}"' for choice in near] or _advice(option)
        if former is not None:
            remedies = [former, f"omit {option.name}"]
        raise OptionError(
            f"{option.name}={raw!r} is {error}",
            asked=f"{option.name}={raw!r} ({source})",
            have=f"{option.name} takes {option.limits}",
            remedy=" · ".join(remedies),
            details={"option": option.name, "value": raw, "source": source},
        ) from None


def describe(name: str, value: Any) -> str:
    """Return a value in a user's notation: 262144 bytes as ``256k``."""
    kind = OPTIONS[name].kind
    if value is None:
        return "-"
    if kind == "size":
        return size_text(value)
    if kind == "timeout" and value < 0:
        return "-1"
    return duration_text(value) if kind in {"duration", "timeout"} else str(value)


#: Starts of environment variables that are no options: those of the page, of tests and benchmarks, and
#: those that Kubernetes sets in every pod for a service with the name "headgate".
_OTHERS: Final = (
    "HEADGATE_UI",
    "HEADGATE_TEST_",
    "HEADGATE_BENCH_",
    "HEADGATE_CHAOS",
    "HEADGATE_SCREENSHOTS",
    "HEADGATE_STREAM_POINTS",
    "HEADGATE_PORT",
    "HEADGATE_SERVICE_",
)
_LARGEST: Final = 2**63 - 1
#: Parsers by kind; values of other kinds are not parsed.
_PARSERS: Final[dict[Kind, Callable[[Any], Any]]] = {
    "address": parse_address,
    "bool": parse_bool,
    "directories": parse_directories,
    "duration": parse_duration,
    "int": parse_int,
    "path": parse_path,
    "size": parse_size,
    "timeout": parse_timeout,
}


def _read_within_limits(option: Option, raw: Any) -> Any:
    value = _read(option, raw)
    if isinstance(value, str) and value in option.choices:
        return value
    if isinstance(value, int) and value > _LARGEST:
        raise ValueError("too large")
    if option.minimum is not None and value < _read(option, option.minimum):
        raise ValueError(f"below the limit of {option.minimum}")
    if option.maximum is not None and value > _read(option, option.maximum):
        raise ValueError(f"above the limit of {option.maximum}")
    return value


def _read(option: Option, raw: Any) -> Any:
    if isinstance(raw, str) and raw in option.choices:
        return raw
    if option.kind == "choice":
        raise ValueError("not one of its values")
    if option.kind == "words":
        return _several(option, raw)
    parser = _PARSERS.get(option.kind)
    return raw if parser is None else parser(raw)


def _several(option: Option, raw: Any) -> str:
    """Return words that stand together, in the order of the option; its first choice stands alone."""
    names = raw.replace(" ", "").split(",") if isinstance(raw, str) else [raw]
    together = option.choices[1:]
    if wrong := [name for name in names if name not in together]:
        raise ValueError(f"no list of {', '.join(together)}: it has {wrong[0]!r}")
    return ",".join(name for name in together if name in names)


def _find(
    option: Option, call: Mapping[str, Any], conf: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[Any, str]:
    if call.get(option.name) is not None:
        return call[option.name], "argument"
    if not option.call_only:
        if option.conf in conf:
            return conf[option.conf], option.conf
        if option.variable in environ:
            return environ[option.variable], option.variable
    return option.default, "default"


def _refuse_unknown(names: Any, options: Mapping[str, Option], role: str) -> None:
    for name in names:
        if name not in options:
            near = close_matches(name, options)
            former = next(
                (
                    text
                    for old, text in FORMER.items()
                    if name in {old, conf_of(old), variable_of(old)}
                ),
                None,
            )
            raise OptionError(
                f"{name!r} is no {role}",
                have=f"{len(options)} options, see docs/options.md",
                remedy=former or " · ".join(near) or f"omit {name}",
                details={"option": name, "close": near},
            )


#: Pairs of options whose first size must not exceed the second.
_ORDERED: Final = (
    ("segment_size", "memory"),
    ("min_segment_size", "segment_size"),
    ("starting_segment_size", "segment_size"),
    ("min_segment_size", "starting_segment_size"),
)


#: Files that are given together, or not at all.
_TLS_FILES: Final = TLS_OPTIONS[1:]


def _check_together(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    _check_sizes(values, sources)
    files = [name for name in _TLS_FILES if values.get(name) is not None]
    if not files:
        return
    missing = [name for name in _TLS_FILES if name not in files]
    if missing or values["tls"] != "require":
        needed = " and ".join(missing) if missing else 'tls="require"'
        raise OptionError(
            f"{files[0]} has no effect without {needed}",
            asked=", ".join(f"{name}={values[name]!r} ({sources[name]})" for name in files),
            remedy=f"give {needed} · omit {' and '.join(files)}",
            details={"option": files[0], "missing": missing},
        )


def _check_sizes(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    for small, large in _ORDERED:
        size, limit = values.get(small), values.get(large)
        if size is None or limit is None or size <= limit:
            continue
        raise OptionError(
            f"{small}={size_text(size)} is larger than {large}={size_text(limit)}",
            asked=f"{small}={size_text(size)} ({sources[small]})",
            have=f"{large}={size_text(limit)} ({sources[large]})",
            remedy=f"a larger {large} · a smaller {small}",
            details={"option": small, "value": size, large: limit},
        )


def _advice(option: Option) -> list[str]:
    if option.kind == "choice":
        return [f'{option.name}="{choice}"' for choice in option.choices]
    duration = '"10s", "100ms"'
    examples = {"duration": duration, "size": '"64m", "256k"', "timeout": duration}
    example = examples.get(option.kind)
    return [f"give {option.limits}" + (f", written as {example}" if example else "")]
