"""The settings of an exchange: its options, and the versions that plan it."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from headgate import __version__
from headgate._option_table import ENV_PREFIX, OPTIONS
from headgate._options import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate._options import Options


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """The options of an exchange and the versions that plan it; the attributes are those of its runs."""

    options: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def settings_of(options: Options, **in_force: Any) -> ExchangeSettings:
    """Return the settings of an exchange.

    Args:
        options: of the call. Those that are no text are left out.
        in_force: values that are not those of the call.
    """
    values = {}
    for name, source in options.sources.items():
        value = in_force.get(name, options[name])
        if OPTIONS[name].kind != "schema":
            text = None if value is None else describe(name, value)
            values[name] = {"value": text, "source": _word(source)}
    return ExchangeSettings(values, versions())


def _word(source: str) -> str:
    """Return the kind of a source, which may be the name of any conf of Spark."""
    if source in {"argument", "default"}:
        return source
    return "environment" if source.startswith(ENV_PREFIX) else "conf"


@cache
def versions() -> dict[str, str]:
    """Return the versions on the driver."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyspark  # noqa: PLC0415 - only where Spark is

    return {
        "headgate": __version__,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "pyspark": pyspark.__version__,
    }
