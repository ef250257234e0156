"""The fields of an explanation: how an exchange will run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.spark.plan.facts import Placement
    from headgate.spark.plan.rules import Mode, Rejected


@dataclass(frozen=True, slots=True)
class Counted:
    """A number and its origin.

    Attributes:
        number: None if it is not known before the exchange runs.
        source: ``"argument"``, a conf, an environment variable, ``"default"``, ``"plan"``, or
            ``"unknown"``.
        why: a sentence.
    """

    number: int | None
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Copied:
    """Columns that a step copies or converts.

    Attributes:
        step: ``"input"``, ``"source"``, ``"shuffle"``, ``"pages"``, ``"sort"``, ``"reduce"`` or
            ``"result"``.
        columns: their names.
        why: a sentence.
    """

    step: str
    columns: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the Python workers, by estimate; bytes.

    Attributes:
        segment: size of the segments of a pool.
        pool: the most that the pool of a worker takes.
        sort: the most that rows take that wait in a worker to be sorted; further ones are in files.
        workers: Python workers of an executor at a time; None if its slots are not known.
        total: of all workers of an executor; None if its workers are not known.
        limit: the memory that Spark gives to it; None if nothing limits it, or if that is not known.
        limited_by: the conf of the limit; empty if there is none.
        fits: True if the pools fit the limit; None if there is none, or if one of both is not known.
        why: a sentence.
    """

    segment: int
    pool: int
    sort: int
    workers: int | None
    total: int | None
    limit: int | None
    limited_by: str
    fits: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Disk:
    """The bytes that producers write, by estimate.

    Attributes:
        bytes: None if they are not known; 0 if nothing is written by Headgate.
        why: a sentence.
    """

    bytes: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Check:
    """A check with its numbers.

    Attributes:
        name: ``"slots"``, ``"dynamic allocation"``, ``"speculation"``, ``"lost executors"``, ``"memory"`` or
            ``"versions"``.
        ok: None if it is not known before the exchange runs.
        why: a sentence.
    """

    name: str
    ok: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A circumstance in which the same call takes another way.

    Attributes:
        when: the circumstance.
        mode: the other way.
        why: the reason.
    """

    when: str
    mode: Mode
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that would make this exchange faster.

    Attributes:
        code: a stable short name, such as ``"read-in-workers"``.
        do: what to do, with the call or option.
        why: a sentence.
    """

    code: str
    do: str
    why: str


@dataclass(frozen=True, slots=True)
class Hop:
    """A way of rows to an exchange, or from one to the result.

    Attributes:
        origin: name of an exchange or of a source; ``"DataFrame"`` for rows of Spark.
        to: name of an exchange; ``"result"`` for what the DataFrame returns.
        crosses: ``"into Python"``, ``"into the JVM"``, ``"into the JVM and back"``, or empty if the rows
            stay where they are.
        why: a sentence.
    """

    origin: str
    to: str
    crosses: str
    why: str


@dataclass(frozen=True, slots=True)
class InputExplained:
    """How an input is read and its rows are placed.

    Attributes:
        number: of the input, from 0.
        source: name of the source; empty for a DataFrame that Spark reads.
        producers: tasks that send its rows.
        placement: of its rows.
        placed: a sentence about it.
        sort_within: the columns by which the rows of a partition are sorted.
        bytes: of its rows, as Spark estimates them; None if unknown.
        spark_reads: why Spark reads it, and what would change that; empty if it does not, or for
            ``read="spark"``.
        follows: name of the exchange in whose tasks its producers run; empty if they are tasks of their own.
        steps: the methods of DataFrame between the two, which these tasks do too.
        why_apart: why its rows cross the JVM although exchanges return them; empty if they do not, or none does.
    """

    number: int
    source: str
    producers: Counted
    placement: Placement
    placed: str
    sort_within: tuple[str, ...]
    bytes: int | None
    spark_reads: str
    follows: str
    steps: tuple[str, ...]
    why_apart: str


@dataclass(frozen=True, slots=True)
class ExchangeExplained:
    """How an exchange will run.

    Attributes:
        name: of the exchange in hex, as its statistics have it.
        mode: ``"repartition"`` (Spark's own), ``"kept"`` or ``"broadcast"``.
        why: the reason.
        others: the ways that were not chosen, with the reasons.
        through: how consumers of a kept exchange get pages; empty for other modes.
        partitions: of the result.
        inputs: in the order of the call.
        copies: columns that are copied or converted, from the input to the result.
        in_place: sentences about the steps at which nothing is copied.
        memory: of the workers.
        disk: that producers use.
        checks: with numbers.
        falls_back: the circumstances in which the same call takes another way.
        faster: what would make it faster.
        unknown: what cannot be known before it runs.
    """

    name: str
    mode: Mode
    why: str
    others: tuple[Rejected, ...]
    through: str
    partitions: Counted
    inputs: tuple[InputExplained, ...]
    copies: tuple[Copied, ...]
    in_place: tuple[str, ...]
    memory: Memory
    disk: Disk
    checks: tuple[Check, ...]
    falls_back: tuple[Fallback, ...]
    faster: tuple[Advice, ...]
    unknown: tuple[str, ...]
