"""The members of a run, and the effects that the coordinator asks for: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.control.cause import Cause
    from headgate.errors import HeadgateError
    from headgate.spark.wire.messages import Message


#: An exchange and the stage of its consumers: two exchanges may have theirs in one stage.
StageKey = tuple[bytes, int]
#: Spark's status of a task that has ended.
ENDED: Final = frozenset({"SUCCESS", "FAILED", "KILLED"})


class State(Enum):
    """The state of a task."""

    DONE = auto()
    """Ended well, or told that it is not needed."""
    ENDING = auto()
    """A producer that was told that its epoch has ended; its task is about to end."""
    FAILED = auto()
    """Ended with an error of its own, or its connection closed before its last message."""
    LIVE = auto()
    """A consumer that waits or was started, or a producer that was told to go."""
    LOST = auto()
    """Its connection closed before a DONE, STOPPED or FAILED message; Spark was asked why."""
    PARKED = auto()
    """A second attempt that waits while the first one runs."""
    STOPPED = auto()
    """Ended early: no further rows were asked for."""


@dataclass(eq=False, slots=True)
class Member:
    """One task that has a control connection.

    Attributes:
        connection: number of the connection.
        exchange_id: the exchange that it authenticated for.
        stage: Spark's stage id.
        partition: Spark's partition id; under ``coalesce`` not the index of a consumer.
        attempt: Spark's task attempt id, unique in the application.
        run: number of its run; 0 while it has none.
        rows: records sent or received so far.
        bytes: bytes sent or received so far.
        pages: pages sent; known at the end.
        peak: peak use of its pool in bytes; known at the end.
        input_ms: ms of waiting for input.
        function_ms: ms in the user's function.
        emit_ms: ms of writing rows into pages.
        blocked_ms: ms of waiting for the receiver of its output.
        memory_ms: ms of waiting for its pool alone.
        link_ms: ms in which the network limited a connection.
        io_ms: ms of processor time of its I/O thread.
        hostname: of its host, once it has told it.
        edges: bytes for the consumers, as :func:`headgate.observe.edges.folded` returns them; known at
            the end.
        edges_each: consumers that share a number in ``edges``.
        began: when it was first heard of, in seconds of the coordinator's clock.
        heard: when it was last heard of.
        broken: the error that its control connection was closed with.
    """

    connection: int
    exchange_id: bytes
    stage: int
    partition: int
    attempt: int
    run: int = 0
    state: State = State.LIVE
    rows: int = 0
    bytes: int = 0
    pages: int = 0
    peak: int = 0
    input_ms: int = 0
    function_ms: int = 0
    emit_ms: int = 0
    blocked_ms: int = 0
    memory_ms: int = 0
    link_ms: int = 0
    io_ms: int = 0
    hostname: str = ""
    edges: Sequence[int] = ()
    edges_each: int = 1
    began: float = 0.0
    heard: float = 0.0
    broken: HeadgateError | None = None

    @property
    def key(self) -> StageKey:
        """Its exchange and the stage that it named."""
        return self.exchange_id, self.stage

    @property
    def is_present(self) -> bool:
        """True while its task runs, as far as is known."""
        return self.state in {State.LIVE, State.PARKED, State.LOST, State.ENDING}

    @property
    def is_done(self) -> bool:
        """True once it has ended well."""
        return self.state is State.DONE


@dataclass(eq=False, slots=True)
class Consumer(Member):
    """One resident consumer; ``index`` is its subpartition."""

    index: int = 0
    #: True if its task takes a slot, False if a share of a core.
    holds_slot: bool = True
    #: True once Spark has been seen to run this attempt in this stage, which is one of its exchange.
    is_confirmed: bool = False
    since: float = 0.0
    #: True once it was sent START in this epoch.
    started: bool = False
    #: True while it has read nothing in this epoch, so that it can be started.
    ready: bool = True
    #: True once rows of an epoch that ended have left it, so that its task must fail.
    yielded: bool = False


class LossOfReader(Protocol):
    """The readers of an epoch, which know the splits of each."""

    def loss(self, producer: Producer, text: str) -> Cause:
        """Return the cause for a lost or failed reader, with Spark's error text for its task."""


@dataclass(eq=False, slots=True)
class Producer(Member):
    """One producer task; ``place`` holds the fields of its REGISTERED message."""

    place: dict[str, str | int] = field(default_factory=dict)
    epoch: int = 0
    #: The run that it named; ``run`` stays 0 if that one is over or of another exchange.
    named_run: int = 0
    #: True once it has acknowledged the end of its epoch: its own end is no loss then.
    has_heard: bool = False
    #: The readers of its epoch, if it reads a source.
    readers: LossOfReader | None = None
    #: The host of a reader, once it has registered.
    host: str = ""

    @property
    def partition_fields(self) -> dict[str, str | int]:
        """The fields of a PARTITION message."""
        return {"producer": self.partition, "attempt": self.attempt, **self.place}

    @property
    def where(self) -> str:
        """The task, for error texts."""
        return f"producer {self.partition} (task {self.attempt})"


# Effects: the coordinator appends them, the loop in server.py carries them out. A run is a number.


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a connection."""

    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class Submit:
    """Start the producer job of a run."""

    run: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the producer job of an epoch; harmless when it has ended."""

    run: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AskVerdict:
    """Ask Spark for the status of a task."""

    member: Member


@dataclass(frozen=True, slots=True)
class Kill:
    """Have Spark kill a task that it takes for running, and start it again."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch has ended early; another one may follow."""

    run: int
    epoch: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Ended:
    """A run has ended; ``cause`` is None if it ended well."""

    run: int
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Broken:
    """An exchange was ended by an error in the coordinator's own code; the others go on."""

    exchange_id: bytes
    cause: Cause


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """An exchange is forgotten: no DataFrame has it, and its last run is over."""

    exchange_id: bytes


Effect = Send | Submit | Cancel | AskVerdict | Kill | EpochEnded | Ended | Broken | Withdrawn
