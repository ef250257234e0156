"""The sizes that decide: those of num_partitions="auto", and those of inputs with broadcast="auto".

num_partitions="auto" is how finely rows are divided, and how far neighbours are joined again. Producers do not know yet how many rows all of them make. So they divide rows into more subpartitions than
there are partitions of the result. The consumer of a partition reads its subpartitions one after the other,
and calls ``reduce`` once for as many neighbours as have about ``advisory_bytes`` of rows.

Decision: ADR 0049.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate._units import size_text
from headgate.errors import OptionError
from headgate.spark.executor_memory import conf_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from headgate._options import Options

_ADVISORY: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_ENABLED: Final = "spark.sql.adaptive.coalescePartitions.enabled"
_INITIAL: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
#: Spark's defaults of the size, and of the largest input that is broadcast.
_ADVISORY_BYTES: Final = 64 << 20
_BROADCAST_BYTES: Final = 10 << 20
#: The confs by which Spark's own joins are broadcast: by measured sizes, and by estimates.
_THRESHOLDS: Final = (
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
    "spark.sql.autoBroadcastJoinThreshold",
)
#: Subpartitions of a partition, and of all partitions, at most.
_EACH: Final = 16
_ALL: Final = 1024
#: Most subpartitions, as of num_partitions.
_MOST: Final = 8000


@dataclass(frozen=True, slots=True)
class AutoPartitions:
    """The sizes by which an exchange with ``num_partitions="auto"`` is divided.

    Attributes:
        advisory_bytes: of rows for a call of ``reduce``; 0 if no neighbours are joined.
        origin: of this size: the option or the conf.
        initial: subpartitions that Spark's conf asks for; None if it does not.
    """

    advisory_bytes: int
    origin: str
    initial: int | None = None

    def each(self, partitions: int) -> int:
        """Return how many subpartitions each partition of the result has."""
        if self.initial is not None:
            return max(1, min(-(-self.initial // partitions), _MOST // partitions))
        return max(1, min(_EACH, _ALL // partitions))


def auto_partitions(
    session: SparkSession, options: Options, placed_by: Mapping[str, str]
) -> AutoPartitions | None:
    """Return the sizes of an exchange with ``num_partitions="auto"``; None if its number is fixed.

    Args:
        session: has Spark's confs.
        options: of the exchange.
        placed_by: kinds of the placements of its inputs -> a text of one of them.

    Raises:
        OptionError: its rows cannot be divided further; or ``advisory_bytes`` would have no effect.
    """
    if options["num_partitions"] != "auto":
        if options.sources["advisory_bytes"] == "argument":
            raise OptionError(
                'advisory_bytes has no effect without num_partitions="auto"',
                asked=f"advisory_bytes={options['advisory_bytes']}",
                remedy='num_partitions="auto" · omit advisory_bytes',
            )
        return None
    other = next((text for kind, text in placed_by.items() if kind != "hash"), None)
    if other is not None:
        raise OptionError(
            'num_partitions="auto" needs columns as by: only by these Headgate can divide rows more finely',
            asked=f"by={other}",
            have=f"num_partitions=auto ({options.sources['num_partitions']})",
            remedy="by=columns · a number as num_partitions",
        )
    return _of_session(session, options)


def _of_session(session: SparkSession, options: Options) -> AutoPartitions:
    def conf(name: str) -> Any:
        return session.conf.get(name, None)

    if str(conf(_ENABLED)).lower() == "false":
        size, origin = 0, f"{_ENABLED}=false"
    elif options["advisory_bytes"] is not None:
        size, origin = options["advisory_bytes"], options.sources["advisory_bytes"]
    else:
        size, origin = conf_size(conf(_ADVISORY)) or _ADVISORY_BYTES, _ADVISORY
    initial = str(conf(_INITIAL) or "")
    return AutoPartitions(size, origin, int(initial) if initial.isdecimal() else None)


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured sizes of the inputs of a call that have ``broadcast="auto"``, and the limit.

    Attributes:
        bytes: of the rows of these inputs in memory, or of a part that is more than the limit; None if
            nothing was measured.
        limit: the most bytes that are sent whole; 0 for none.
        origin: of the limit: the option or the conf.
    """

    bytes: int | None
    limit: int
    origin: str

    @property
    def is_small(self) -> bool:
        """True if the inputs are sent whole."""
        return self.bytes is not None and self.bytes <= self.limit

    @property
    def reason(self) -> str:
        """The reason for which the inputs are sent whole, or are not, in words."""
        if self.bytes is None:
            return f"as nothing is broadcast by its size ({self.origin})"
        if self.is_small:
            return f"as {self.bytes:,} bytes were measured, of at most {size_text(self.limit)} ({self.origin})"
        return f"as {self.bytes:,} bytes or more were measured, above {size_text(self.limit)} ({self.origin})"


def broadcast_limit(session: SparkSession, options: Options) -> tuple[int, str]:
    """Return the most bytes of inputs that are sent whole, 0 for none, and the option or conf that says so."""
    if options["broadcast_bytes"] is not None:
        return options["broadcast_bytes"], options.sources["broadcast_bytes"]
    for name in _THRESHOLDS:
        value = session.conf.get(name, None)
        if value is not None:
            return conf_size(value) or 0, f"{name}={value}"
    return _BROADCAST_BYTES, _THRESHOLDS[-1]


def check_broadcast_bytes(options: Options, measured: Iterable[Measured | None]) -> None:
    """Refuse a limit of a call without inputs that were measured."""
    if options.sources["broadcast_bytes"] == "argument" and not any(measured):
        raise OptionError(
            'broadcast_bytes has no effect without an input with broadcast="auto"',
            asked=f"broadcast_bytes={options['broadcast_bytes']}",
            remedy='Input(small, broadcast="auto") · omit broadcast_bytes',
        )
