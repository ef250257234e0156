"""Every option of Headgate, in one table: names, types, defaults, limits and what they mean.

The table is the only source: the parsers, the error texts and ``docs/options.md`` come from it. A
value is taken from the first place that gives one:

1. the call: ``memory="64m"``; ``None`` counts as not given
2. the session's conf: ``spark.headgate.memory``, names in camelCase as Spark's own
3. the environment: ``HEADGATE_MEMORY``
4. the default
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate._matches import close_matches
from headgate._option import CONF_PREFIX, Kind, Option, Scope
from headgate._units import duration_text, parse_duration, parse_size, parse_timeout, size_text
from headgate._values import parse_address, parse_directories, parse_int
from headgate.errors import OptionError

OPTIONS: Final[dict[str, Option]] = {
    option.name: option
    for option in (
        Option(
            "memory",
            "size",
            "64m",
            ("environment", "exchange"),
            "The budget of a process: the pool of segments that all exchange data lives in. "
            "Committed as it is used, never exceeded.",
            minimum="64k",
            maximum="1t",
        ),
        Option(
            "segment_size",
            "size",
            "256k",
            ("environment", "exchange"),
            "The fixed size of a segment: unit of memory, of a page and of a credit. Larger ones "
            "cost less work per row; smaller ones let more channels share the pool.",
            minimum="4k",
            maximum="64m",
        ),
        Option(
            "max_record_size",
            "size",
            "256m",
            ("environment", "exchange"),
            "The largest single record: one row, one bytes record or one Python object. What does "
            "not fit a segment is put together in ordinary memory, and this bounds it.",
            minimum="1k",
            maximum="1g",
        ),
        Option(
            "buffers_per_channel",
            "int",
            2,
            ("environment", "exchange"),
            "Segments that a channel from another process always has, and that a subpartition may "
            "queue beside the one being written. More hide the latency of the network; where the "
            "pool is short of them a channel gets fewer, at least one. With 0 channels have none: "
            "each buffer waits until the gate has a floating one for it.",
            minimum=0,
            maximum=10_000,
        ),
        Option(
            "floating_buffers_per_gate",
            "int",
            8,
            ("environment", "exchange"),
            "Segments that a gate gives to the channels with the most waiting, and that a partition "
            "gives to whichever subpartition needs them.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_buffers_per_channel",
            "int",
            10,
            ("environment", "exchange"),
            "A soft limit: while one subpartition has as many segments queued, the writer waits "
            "before its next record, so that one slow consumer does not take what the others need.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_overdraft_buffers",
            "int",
            5,
            ("environment", "exchange"),
            "Segments that a partition may take beyond its part of the pool to complete a record "
            "it has begun, while nobody else was promised them; 0 for none.",
            minimum=0,
            maximum=100_000,
        ),
        Option(
            "buffer_timeout",
            "timeout",
            "100ms",
            ("environment", "exchange"),
            "How long rows may wait in a page that is not full while its consumer has nothing to "
            "take, and records in such a buffer. 0 sends after each batch or record; -1 never by "
            "time, only what is full, and all with an event, a flush or the end.",
            maximum="1m",
        ),
        Option(
            "spill_threshold",
            "size",
            "5m",
            ("environment", "exchange"),
            "A record larger than this that spans segments is put together in a temporary file "
            "instead of memory, and read into memory once it is complete: of all channels, only "
            "the record that is returned takes memory then.",
            minimum="100k",
            maximum="1g",
        ),
        Option(
            "temp_directories",
            "directories",
            None,
            ("environment", "exchange"),
            "Where temporary files are made, in turn; they must exist. One in which no file can "
            "be made is not used again. Files have no name, so that nothing is left of them even "
            "after a kill. If not given, Spark's local directories where a process runs for Spark, "
            "else the system's temporary directory.",
        ),
        Option(
            "listen",
            "address",
            "127.0.0.1:0",
            ("environment",),
            "Where other processes reach this one.",
        ),
        Option(
            "partition_request_timeout",
            "duration",
            "10s",
            ("environment",),
            "How long the request of a consumer waits at the producer's process for a partition that "
            "does not exist yet. A partition that was released is not waited for.",
            minimum="0ms",
            maximum="1h",
        ),
        Option(
            "idle_timeout",
            "duration",
            "10s",
            ("environment",),
            "How long a process that channels are open to may say nothing before it is taken for "
            "lost. The I/O threads beat when they have nothing else to say, so that a busy function "
            "is no silence; a stopped process is.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "num_partitions",
            "int",
            None,
            ("exchange",),
            "How many consumer tasks, and partitions of the result; half of the slots, at least 1, "
            "when it is not given.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "parallelism",
            "int",
            None,
            ("exchange",),
            "How many readers a source has, as tasks of the producer job; the slots that the "
            "consumers leave, at least 1, when it is not given. Where there are fewer slots they "
            "run in waves, and later ones find what splits are left. Not for a DataFrame.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "on_no_slots",
            "choice",
            "shuffle",
            ("exchange",),
            "What to do when the consumers and one producer do not fit the slots: run the job "
            "through Spark's own repartition with a warning, or raise.",
            choices=("shuffle", "error"),
        ),
        Option(
            "consumer_timeout",
            "duration",
            "60s",
            ("exchange",),
            "How long a task tries to reach the coordinator on the driver before it takes it for "
            "lost.",
            minimum="1s",
            maximum="1h",
        ),
        Option(
            "heartbeat_timeout",
            "duration",
            "10s",
            ("exchange",),
            "How long a task, or the driver, may give no sign of life before it is taken for lost. "
            "Signs come each half a second from a thread of their own, so that a busy function or "
            "program is none of those.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "progress",
            "choice",
            "auto",
            ("exchange",),
            "Progress on the driver: a line on a terminal, an output in a notebook and a log line "
            "each 10 s elsewhere (auto), log lines only, or nothing. See docs/progress.md.",
            choices=("auto", "log", "off"),
        ),
        Option(
            "map_schema",
            "schema",
            None,
            ("exchange",),
            "What map returns, when both map and reduce are given; the input's schema when it is "
            "not given.",
            call_only=True,
        ),
    )
}


#: The options of an environment that say how its pool is shared out.
BUFFER_OPTIONS: Final = (
    "buffers_per_channel",
    "floating_buffers_per_gate",
    "max_buffers_per_channel",
    "max_overdraft_buffers",
)


@dataclass(frozen=True, slots=True, eq=False)
class Options(Mapping[str, Any]):
    """The values of all options of one call, parsed, and where each came from."""

    values_by_name: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value: bytes for a size, seconds for a duration."""
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the table."""
        return iter(self.values_by_name)

    def __len__(self) -> int:
        """Return how many options the call has."""
        return len(self.values_by_name)


def resolve(
    scope: Scope,
    call: Mapping[str, Any],
    conf: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Options:
    """Return the values of all options of a scope.

    Args:
        scope: which call it is for.
        call: keyword arguments as given; None counts as not given.
        conf: the session's conf; keys outside ``spark.headgate.`` are ignored.
        environ: environment variables, by default those of the process.

    Raises:
        OptionError: an unknown name, or a value that its option does not take.
    """
    conf = conf or {}
    environ = os.environ if environ is None else environ
    table = {name: option for name, option in OPTIONS.items() if scope in option.scopes}
    _refuse_unknown(call, table, f"option of {_CALLS[scope]}")
    ours = [key for key in conf if key.startswith(CONF_PREFIX)]
    _refuse_unknown(ours, {option.conf: option for option in OPTIONS.values()}, "conf")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, option in table.items():
        raw, source = _find(option, call, conf, environ)
        values[name] = None if raw is None else parse(option, raw, source)
        sources[name] = source
    _check_together(values, sources)
    return Options(values, sources)


def parse(option: Option, raw: Any, source: str = "argument") -> Any:
    """Return the value of an option in its own unit.

    Raises:
        OptionError: the value cannot be read, or lies outside the limits.
    """
    try:
        return _read_within_limits(option, raw)
    except (TypeError, ValueError) as error:
        near = close_matches(raw, option.choices) if isinstance(raw, str) else []
        raise OptionError(
            f"{option.name}={raw!r} is {error}",
            asked=f"{option.name}={raw!r} ({source})",
            have=f"{option.name} takes {option.limits}",
            remedy=" · ".join([f'{option.name}="{choice}"' for choice in near] or _advice(option)),
            details={"option": option.name, "value": raw, "source": source},
        ) from None


def describe(name: str, value: Any) -> str:
    """Return a value as a user would write it: 262144 bytes as ``256k``."""
    kind = OPTIONS[name].kind
    if value is None:
        return "-"
    if kind == "size":
        return size_text(value)
    if kind == "timeout" and value < 0:
        return "-1"
    return duration_text(value) if kind in {"duration", "timeout"} else str(value)


#: What reads a value, by kind; others are taken as they are.
_PARSERS: Final[dict[Kind, Callable[[Any], Any]]] = {
    "address": parse_address,
    "directories": parse_directories,
    "duration": parse_duration,
    "int": parse_int,
    "size": parse_size,
    "timeout": parse_timeout,
}

_CALLS: Final[dict[Scope, str]] = {"environment": "ShuffleEnvironment", "exchange": "exchange()"}


def _read_within_limits(option: Option, raw: Any) -> Any:
    value = _read(option, raw)
    if option.minimum is not None and value < _read(option, option.minimum):
        raise ValueError(f"below the limit of {option.minimum}")
    if option.maximum is not None and value > _read(option, option.maximum):
        raise ValueError(f"above the limit of {option.maximum}")
    return value


def _read(option: Option, raw: Any) -> Any:
    if option.kind == "choice" and raw not in option.choices:
        raise ValueError("not one of its values")
    parser = _PARSERS.get(option.kind)
    return raw if parser is None else parser(raw)


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


def _refuse_unknown(given: Any, known: Mapping[str, Option], what: str) -> None:
    for name in given:
        if name not in known:
            near = close_matches(name, known)
            raise OptionError(
                f"{name!r} is no {what}",
                asked=name,
                have=", ".join(known),
                remedy=" · ".join(near),
                details={"option": name, "close": near},
            )


def _check_together(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    memory, segment = values.get("memory"), values.get("segment_size")
    if memory is not None and segment is not None and segment > memory:
        raise OptionError(
            f"segment_size={size_text(segment)} is larger than memory={size_text(memory)}",
            asked=f"segment_size={size_text(segment)} ({sources['segment_size']})",
            have=f"memory={size_text(memory)} ({sources['memory']})",
            remedy="a larger memory · a smaller segment_size",
            details={"option": "segment_size", "value": segment, "memory": memory},
        )


def _advice(option: Option) -> list[str]:
    if option.choices:
        return [f'{option.name}="{choice}"' for choice in option.choices]
    duration = '"10s", "100ms"'
    examples = {"duration": duration, "size": '"64m", "256k"', "timeout": duration}
    example = examples.get(option.kind)
    return [f"give {option.limits}" + (f", written as {example}" if example else "")]
