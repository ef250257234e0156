"""Who takes part in a run, and what the coordinator wants done: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.errors import HeadgateError
    from headgate.spark.driver.epochs import Epochs
    from headgate.spark.driver.readers import Readers
    from headgate.spark.driver.run import Run
    from headgate.spark.wire.cause import Cause
    from headgate.spark.wire.messages import Message


#: Spark's words for a task that does not run any more.
ENDED: Final = frozenset({"SUCCESS", "FAILED", "KILLED"})


class State(Enum):
    """Where a task stands."""

    DONE = auto()
    """Ended as it should, or told that nobody needs it."""
    ENDING = auto()
    """A producer that was told that its epoch has ended, and whose task is about to."""
    FAILED = auto()
    """Ended with an error of its own, or gone without a goodbye."""
    LIVE = auto()
    """Takes part: a consumer that will be or was started, a producer that was told to go."""
    LOST = auto()
    """Its connection ended without a goodbye; Spark was asked what became of it."""
    PARKED = auto()
    """A second attempt of a task whose first one lives: waits for what becomes of that one."""
    STOPPED = auto()
    """Ended early because nobody asked for more."""


@dataclass(eq=False, slots=True)
class Member:
    """One task that has a control connection.

    Attributes:
        connection: number of the connection.
        exchange_id: the exchange whose key it proved.
        stage: Spark's stage id.
        partition: Spark's partition id; under ``coalesce`` not the index of a consumer.
        attempt: Spark's task attempt id, unique in the application.
        rows: records so far.
        bytes: bytes so far.
        pages: pages at the end.
        peak: peak use of its pool in bytes, known at the end.
        input_ms: ms in which it waited for its input.
        function_ms: ms in the user's function.
        emit_ms: ms in which it put rows into pages.
        blocked_ms: ms in which it waited for whoever takes what it made.
        broken: what its control connection was closed for, where it made no sense any more.
    """

    connection: int
    exchange_id: bytes
    stage: int
    partition: int
    attempt: int
    state: State = State.LIVE
    rows: int = 0
    bytes: int = 0
    pages: int = 0
    peak: int = 0
    input_ms: int = 0
    function_ms: int = 0
    emit_ms: int = 0
    blocked_ms: int = 0
    broken: HeadgateError | None = None

    @property
    def is_present(self) -> bool:
        """Whether its task still runs, as far as is known."""
        return self.state in {State.LIVE, State.PARKED, State.LOST, State.ENDING}

    @property
    def is_done(self) -> bool:
        """Whether it has ended as it should."""
        return self.state is State.DONE


@dataclass(eq=False, slots=True)
class Consumer(Member):
    """One resident consumer: ``index`` is the subpartition that its rows of the range name."""

    index: int = 0
    run: Run | None = None
    since: float = 0.0
    #: Told START in the epoch of now.
    started: bool = False
    #: Has read nothing in the epoch of now, so it can be started.
    ready: bool = True
    #: Rows of the epoch that ended have left it, so its task fails.
    yielded: bool = False
    #: Told END: its subpartition is served by a sibling, its task is about to end.
    leaving: bool = False


@dataclass(eq=False, slots=True)
class Producer(Member):
    """One producer task; ``place`` are the fields of its REGISTERED message."""

    place: dict[str, str | int] = field(default_factory=dict)
    run: Run | None = None
    epoch: int = 0
    #: Has said that it knows of its epoch's end: what ends it now is no loss.
    has_heard: bool = False
    #: Of its epoch, where it reads a source.
    readers: Readers | None = None
    #: Of a reader of a source, once it has said so.
    host: str = ""

    @property
    def partition_fields(self) -> dict[str, str | int]:
        """The fields of a PARTITION message."""
        return {"producer": self.partition, "attempt": self.attempt, **self.place}

    @property
    def where(self) -> str:
        """The task in words."""
        return f"producer {self.partition} (task {self.attempt})"


# What the coordinator wants done; the loop in server.py does it.


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a connection."""

    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class Submit:
    """Start the producer job of a run."""

    run: Run


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the producer job of an epoch; harmless when it has ended."""

    run: Run
    epoch: int


@dataclass(frozen=True, slots=True)
class AskVerdict:
    """Ask Spark what became of a task."""

    member: Member
    run: Epochs


@dataclass(frozen=True, slots=True)
class Kill:
    """Have Spark end a task that it thinks is running, and try it again."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch of a run is over before its time; another one may follow."""

    run: Epochs
    epoch: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Ended:
    """A run is over; ``cause`` is None when it went well."""

    run: Epochs
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the user, on the driver, once."""

    text: str


Effect = Send | Submit | Cancel | AskVerdict | Kill | EpochEnded | Ended | Warn
