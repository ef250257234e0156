"""The facts on which the plan of an exchange depends: those of the call and those of the session.

They are plain values. So ``explain()`` can remember them without keeping a DataFrame or a function alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate._missing import has_native
from headgate.selectors import (
    PLACED_BY_ORDER,
    BroadcastSelector,
    ForwardSelector,
    GlobalSelector,
    HashSelector,
    KeyGroupSelector,
    ShuffleSelector,
)
from headgate.spark.confs import context_confs, is_connect, session_confs
from headgate.spark.connect import master_of, slots_on_connect
from headgate.spark.plan.keys import key_text
from headgate.spark.shuffle_files import (
    SHUFFLE,
    ShuffleSetting,
    manager_compares_rows,
    unknown_shuffle,
)
from headgate.spark.slots import Slots, local_attempts, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headgate._options import Options
    from headgate.spark.plan.sizes import AutoPartitions, Measured

_CHECKSUM: Final = "spark.sql.shuffle.orderIndependentChecksum"


@dataclass(frozen=True, slots=True)
class Placement:
    """How the rows of an input are placed.

    Attributes:
        kind: ``"hash"``, ``"key groups"``, ``"turn"``, ``"random"``, ``"all"``, ``"one"``, ``"function"``
            or ``"selector"``; ``"whole"`` for an input that is broadcast, ``"stays"`` for the one beside it.
        columns: the keys, as the caller names them.
        name: of the function or selector.
        by_rows: True if single rows are placed, False if whole batches are.
    """

    kind: str
    columns: tuple[str, ...] = ()
    name: str = ""
    by_rows: bool = True

    @property
    def is_by_spark(self) -> bool:
        """True if Spark's own repartition places the rows, without a function of Python."""
        return self.kind in {"hash", "turn", "random"}

    @property
    def is_by_order(self) -> bool:
        """True if the place of a row may depend on the rows before it."""
        return self.kind in {"turn", "random", "function"}

    @property
    def label(self) -> str:
        """The partitioning as text, for job descriptions."""
        if self.kind in {"whole", "stays"}:
            return "broadcast" if self.kind == "whole" else "its partitions"
        if self.name:
            return "function" if self.kind == "function" else self.name
        return f"[{', '.join(self.columns)}]" if self.columns else "round robin"


@dataclass(frozen=True, slots=True)
class Followed:
    """The exchange whose tasks, which return its rows, also do the work of the producers of the next one.

    Attributes:
        exchange: its name.
        tasks: their number; None if Spark finds it while it runs.
        memory: bytes of the pool with which each of them reads; 0 if Spark brings the rows.
        steps: the methods of DataFrame between the two exchanges, which these tasks do too.
    """

    exchange: str
    tasks: int | None
    memory: int
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The facts of an input.

    Attributes:
        source: name of the source; empty for a DataFrame that Spark reads.
        placement: of its rows.
        sort_within: the columns by which the rows of a partition are sorted.
        spark_reads: why Spark reads it, and what would change that; empty if it does not, or for
            ``read="spark"``.
        follows: the exchange in whose tasks its producers run; None if they are tasks of their own.
        why_apart: why they are, and what would change that; empty if they are not.
        has_map: True if Python makes the rows that are sent.
        has_combine: True if Python merges them before they are sent.
        has_computed_keys: True if only Spark can compute a key.
        map_input: schema of the rows that ``map`` gets.
        read: schema of the batches as the source says; None for a DataFrame.
        sent: schema of the rows that are sent.
        producers: number of tasks that read a source; None if it is not known when the plan is made.
        splits: of a source, as far as they are listed ahead.
        measured: the size by which it was broadcast or not; None if it was not measured.
    """

    source: str
    placement: Placement
    sort_within: tuple[str, ...]
    has_map: bool
    has_computed_keys: bool
    map_input: pa.Schema
    read: pa.Schema | None
    sent: pa.Schema
    spark_reads: str = ""
    has_combine: bool = False
    follows: Followed | None = None
    why_apart: str = ""
    producers: int | None = None
    splits: int | None = None
    measured: Measured | None = None

    @property
    def has_function(self) -> bool:
        """True if a function of Python makes or merges the rows before they are sent."""
        return self.has_map or self.has_combine

    @property
    def is_shortest(self) -> bool:
        """True if rows cross between the JVM and Python least often through Spark's own shuffle."""
        placement = self.placement
        by_spark = placement.kind == "hash" or (placement.kind == "turn" and not placement.name)
        is_in_jvm = not self.source and self.follows is None
        return is_in_jvm and not self.has_function and by_spark


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The facts of a call of exchange().

    Attributes:
        inputs: in the order of the call.
        has_reduce: True if Python makes the result.
        result: schema of the result.
        options: of the call.
        is_listed: True if the inputs are given as a list.
        mode: the option of this name.
        auto: the sizes by which rows are divided with ``num_partitions="auto"``; None if the number is fixed.
    """

    inputs: tuple[InputFacts, ...]
    has_reduce: bool
    result: pa.Schema
    options: Options
    is_listed: bool
    mode: str
    auto: AutoPartitions | None = None

    @property
    def by(self) -> str:
        """The partitioning of all inputs as text."""
        return " + ".join(facts.placement.label for facts in self.inputs)

    @property
    def is_shortest(self) -> bool:
        """True if Spark's own shuffle is the shortest way."""
        return not self.is_listed and self.inputs[0].is_shortest

    @property
    def is_by_order(self) -> bool:
        """True if the place of a row may depend on the rows before it."""
        return any(facts.placement.is_by_order for facts in self.inputs)

    @property
    def is_by_spark(self) -> bool:
        """True if Spark's own repartition can place the rows."""
        return not self.is_listed and self.inputs[0].placement.is_by_spark


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of a session, and of its application.

    Attributes:
        on_connect: True if its driver is elsewhere.
        is_one_process: True if all tasks run in the driver's JVM, so no executor can be lost.
        shares_files: True if all executors are sure to be on one host, where consumers map the files of
            producers.
        compares_rows: True if Spark notices a task that returns other rows when it runs again.
        unknown_shuffle: the setting of a shuffle that is not known to write a file for each task to the local
            directories of its executor; None if it is known.
        slots: of the application; on Connect those that the master fixes, or Spark's default.
        master: of the application; empty if it is not known.
        conf: of the application; empty if it is not known.
        has_native: False in the wheel without the native module, which only Spark's own shuffle does not need.
    """

    on_connect: bool = False
    is_one_process: bool = False
    shares_files: bool = False
    compares_rows: bool = True
    unknown_shuffle: ShuffleSetting | None = None
    slots: Slots = field(default_factory=lambda: Slots(0, "unknown"))
    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    has_native: bool = True

    @property
    def is_inline(self) -> bool:
        """True if consumers may be where they can neither map files nor ask the driver for hosts."""
        return self.on_connect and not self.shares_files

    @property
    def through(self) -> str:
        """How consumers of a kept exchange get the pages, in words."""
        if self.shares_files:
            return "files"
        return "Spark's shuffle" if self.is_inline else "hosts"


def session_facts(session: SparkSession, *, by_order: bool) -> SessionFacts:
    """Ask Spark for the facts of a session.

    Args:
        session: the session.
        by_order: True if rows are placed by their order. No rule looks at ``compares_rows`` otherwise, and
            Spark takes a call for each conf.
    """
    on_connect, master = is_connect(session), master_of(session)
    conf = {} if on_connect else context_confs(session.sparkContext)
    shuffle = session_confs(session, SHUFFLE) if on_connect else conf
    return SessionFacts(
        on_connect=on_connect,
        is_one_process=local_attempts(master) is not None,
        shares_files=shares_files(master),
        compares_rows=not by_order or _compares_rows(session, shuffle),
        unknown_shuffle=unknown_shuffle(shuffle),
        slots=slots_on_connect(session) if on_connect else slots_of(session.sparkContext),
        master=master,
        conf=conf,
        has_native=has_native(),
    )


def shares_files(master: str) -> bool:
    """Return True if a master has all executors on one host."""
    return master.startswith("local")


def placement(by: Any) -> Placement:
    """Return how rows are placed by a checked argument ``by``."""
    if by is None:
        return Placement("turn", by_rows=False)
    if isinstance(by, list):
        return Placement("hash", tuple(map(key_text, by)))
    name = type(by).__name__
    columns: tuple[str, ...] = ()
    kind = "selector"
    match by:
        case HashSelector():
            kind, columns = "hash", tuple(map(key_text, by.columns))
        case KeyGroupSelector():
            kind, columns = "key groups", (by.column,)
        case ShuffleSelector():
            kind = "random"
        case BroadcastSelector():
            kind = "all"
        case ForwardSelector() | GlobalSelector():
            kind = "one"
        case _ if isinstance(by, PLACED_BY_ORDER):
            kind = "turn"
        case _ if callable(by):
            kind, name = "function", str(getattr(by, "__name__", name))
    return Placement(kind, columns, name, getattr(by, "by_rows", kind not in {"all", "one"}))


def _compares_rows(session: SparkSession, shuffle: Mapping[str, str]) -> bool:
    major, minor = session.version.split(".")[:2]
    if (int(major), int(minor)) < (4, 1):
        return False
    return manager_compares_rows(shuffle) and all(
        session.conf.get(f"{_CHECKSUM}.{name}", "true") == "true"
        for name in ("enabled", "enableFullRetryOnMismatch")
    )
