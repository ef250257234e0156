"""The way of an exchange, chosen from plain facts. No Spark here.

``exchange()`` plans what :func:`choose` returns, and ``explain()`` shows it. So there is one copy of the rules.

Decision: ADR 0044.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How rows travel: by Spark's own repartition, or in files.
Mode: TypeAlias = Literal["repartition", "kept"]

_NO_MAP: Final = "no map makes the rows, and Spark can place them"
_LISTED: Final = "an exchange whose inputs are given as a list is always kept"
_ONLY_WORK: Final = (
    "rows that come from the JVM and return to it would only be converted twice more"
)
_INLINE: Final = (
    "executors may be on several hosts, and a Spark Connect session cannot tell which, so all pages "
    "would travel through Spark's shuffle"
)
_NO_PLAN: Final = "a client of Spark Connect does not see its plan"
_NO_FUNCTION: Final = "no function gets its rows"
_COMPUTED: Final = "Spark computes its keys"
_BY_ORDER: Final = (
    "by may place rows by their order, which may differ if an executor is lost, and Spark "
    "would not notice: that takes Spark 4.1 and its spark.sql.shuffle.orderIndependentChecksum"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The facts of a call on which its way depends.

    Attributes:
        mode: the option of this name.
        mode_from: where its value comes from.
        by: the partitioning in words.
        is_listed: True if the inputs are given as a list.
        is_shortest: True if Spark's shuffle takes the rows of a DataFrame between JVM and Python least often.
        is_by_order: True if the place of a row may depend on the rows before it.
        has_map: True if Python makes the rows.
        reads_source: True if the workers read the input.
        spark_places: True if Spark's own repartition places the rows, without a function of Python.
    """

    mode: str
    mode_from: str
    by: str
    is_listed: bool = False
    is_shortest: bool = False
    is_by_order: bool = False
    has_map: bool = False
    reads_source: bool = False
    spark_places: bool = False


@dataclass(frozen=True, slots=True)
class There:
    """The facts of a session on which the way of an exchange depends.

    Attributes:
        on_connect: True if its driver is elsewhere.
        is_one_process: True if all tasks run in the driver's JVM, so no executor can be lost.
        shares_files: True if all executors are sure to be on one host.
        compares_rows: True if Spark notices a task that returns other rows when it runs again.
    """

    on_connect: bool = False
    is_one_process: bool = False
    shares_files: bool = False
    compares_rows: bool = True

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


@dataclass(frozen=True, slots=True)
class Other:
    """A way that was not chosen."""

    mode: Mode
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The way of an exchange.

    Attributes:
        mode: the way.
        why: the reason.
        others: the other ways, each with the reason against it.
        impossible: why the call cannot be carried out; empty if it can.
        remedy: what to do then.
    """

    mode: Mode
    why: str
    others: tuple[Other, ...] = ()
    impossible: str = ""
    remedy: str = ""


def why_not_kept(asked: Asked, there: There) -> str:
    """Return why an exchange cannot be kept; empty if it can."""
    if asked.is_by_order and not there.is_one_process and not there.compares_rows:
        return _BY_ORDER
    return ""


def why_spark_reads(
    asked: Asked, there: There, *, has_reduce: bool, has_computed_keys: bool
) -> str:
    """Return why Spark reads a DataFrame of which the workers could read the files; empty if they do."""
    if there.on_connect:
        return _NO_PLAN
    if asked.mode == "auto" and asked.is_shortest and not has_reduce:
        return _NO_FUNCTION
    return _COMPUTED if has_computed_keys else ""


def joined_bytes(options: Mapping[str, Any]) -> int:
    """Return the size of the batches into which a consumer of a kept exchange puts small pages together."""
    # Each batch costs Spark about 0.1 ms, and a thousand producers make pages of a few rows.
    size: int = options["batch_bytes"] or options["segment_size"]
    return size


def choose(asked: Asked, there: There) -> Choice:
    """Return the way of an exchange."""
    not_kept, not_spark = why_not_kept(asked, there), _why_not_spark(asked)
    remedy = _remedy(asked) if not_kept else ""
    if asked.is_listed:
        return Choice("kept", _LISTED, (Other("repartition", _LISTED),), not_kept, remedy)
    if asked.mode != "auto":
        said = f'mode="{asked.mode}" ({asked.mode_from})'
        if asked.mode == "kept":
            return Choice("kept", said, (), not_kept, remedy)
        # Spark's repartition of rows that Python places trusts in their order as well.
        return Choice("repartition", said, (), "" if asked.spark_places else not_kept, remedy)
    if asked.is_shortest:
        return Choice("repartition", _NO_MAP, (Other("kept", _ONLY_WORK),))
    if there.is_inline or (not_kept and asked.spark_places):
        why = _INLINE if there.is_inline else not_kept
        impossible = "" if asked.spark_places else not_kept
        return Choice("repartition", why, (Other("kept", why),), impossible, remedy)
    return Choice("kept", not_spark, (Other("repartition", not_spark),), not_kept, remedy)


def _remedy(asked: Asked) -> str:
    """Return what to do if rows are placed by an order that Spark does not watch."""
    left_to_spark = ['mode="spark"'] if asked.spark_places and not asked.is_listed else []
    return " · ".join(["by=columns", *left_to_spark, "Spark 4.1 or newer"])


def _why_not_spark(asked: Asked) -> str:
    """Return why Spark's own repartition is not the shortest way."""
    if asked.has_map:
        return "map makes the rows in Python, from where Spark's shuffle would take them through the JVM"
    if asked.reads_source:
        return "the workers read the rows, and Spark's shuffle would take them through the JVM"
    return f"by is {asked.by}, by which only Python can place rows"
