"""The base of all operators."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.key_groups import key_group_range
from headgate.stream.graph.metrics import Metrics
from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.call_rates import TokenLink
    from headgate.stream.state.files import SnapshotFolder
    from headgate.stream.state.snapshot import Snapshot

#: Counters of what operators drop: rows that are too late for their windows, as Flink calls it; rows of an output that
#: nothing reads; values of state that are older than their time to live; rows whose key had one before.
LATE_DROPPED: Final = "numLateRecordsDropped"
UNREAD: Final = "numUnreadRecords"
EXPIRED: Final = "numExpiredValues"
#: Counts rows of count windows that were not full at the end.
LEFT_OVER: Final = "numRecordsLeftOver"
DUPLICATES: Final = "numDuplicatesDropped"
#: Rows that a change takes away and that state does not have, since they expired or never came.
UNKNOWN_DELETES: Final = "numUnknownDeletes"

#: Called with a batch and the name of a side output; None for the main one.
Emit = Callable[["pa.RecordBatch", "str | None"], None]


def _nothing(_: int | None = None) -> None:
    """Do nothing, where no task runs the operator."""


def _no_object(_: Metrics) -> None:
    """Return nothing, where no task runs the operator."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The task in which an operator is opened.

    Attributes:
        uid: name of the operator.
        index: number of the task, from 0.
        parallelism: number of tasks.
        max_parallelism: number of key groups.
        emit: takes the operator's rows.
        job: name of the job.
        attempt: a name of this attempt of the task that no other one has.
        clock: the processing time in ms since 1970.
        is_durable: True if the job keeps checkpoints.
        restored_checkpoint: the checkpoint that the job continues from; None for a new job.
        restored: folders and numbers of the snapshots that have this task's keys; empty for a new job.
        allow_dropped_state: True to drop restored state that the operator does not declare.
        restored_watermark: the lowest of the operator's tasks at the checkpoint; None if one had none.
        metrics: of the user's function.
        state_memory: where keyed state is.
        wake_up: lets the task call :meth:`Operator.poll` soon; from any thread.
        pass_on: sends on a watermark that the operator held, or None for idleness.
        tokens: of the rate of its calls; None if they have none.
        folder: path or URI for files of this operator's task in this attempt; None if the job keeps no checkpoints.
        load_shared: loads what the tasks of the operator share, for the metrics of one of them.
        shared: what it returned.
    """

    uid: str
    index: int
    parallelism: int
    max_parallelism: int
    emit: Emit
    job: str
    attempt: str
    clock: Callable[[], int]
    is_durable: bool
    restored_checkpoint: int | None = None
    restored: Sequence[tuple[SnapshotFolder, int]] = ()
    restored_watermark: int | None = None
    allow_dropped_state: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    state_memory: StateMemory = ALL_IN_MEMORY
    wake_up: Callable[[], None] = _nothing
    pass_on: Callable[[int | None], None] = _nothing
    folder: str | None = None
    tokens: TokenLink | None = None
    load_shared: Callable[[Metrics], Any] = _no_object
    shared: Any = None

    @property
    def key_groups(self) -> range:
        """The key groups of this task."""
        return key_group_range(self.index, self.parallelism, self.max_parallelism)


@dataclass(slots=True)
class OperatorSnapshot:
    """An operator's part of a checkpoint.

    Attributes:
        state: keyed state that is still to be written, by another thread.
        committables: what the sink's committer is to commit, each with the checkpoint that it was made for.
        watermark: of windows, in ms; rows that are late for it are late after a restart, too.
        is_left_out: True if the operator has state that is no part of the checkpoint, from which nothing continues.
    """

    state: Snapshot | None = None
    committables: tuple[tuple[int, bytes], ...] = ()
    watermark: int | None = None
    is_left_out: bool = False


class Operator(ABC):
    """An operator of one task. The task's thread calls all methods: :meth:`open` first, :meth:`close` last."""

    #: True if rows may wait in the operator, and watermarks with them: it passes them on by its context.
    holds_watermarks = False

    def open(self, context: OperatorContext) -> None:
        """Get ready, and restore state."""
        self._context = context

    @abstractmethod
    def process(self, batch: pa.RecordBatch) -> None:
        """Handle a batch of at least one row."""

    def advance_watermark(self, watermark: int) -> None:  # noqa: B027 - optional
        """Handle that no row up to this time follows; in ms. The task passes the watermark on."""

    @property
    def next_processing_timer(self) -> int | None:
        """Time in ms of the first timer of processing time; None if there is none."""
        return None

    def advance_processing_time(self, now: int) -> None:  # noqa: B027 - optional
        """Fire the timers of processing time up to a time in ms."""

    def set_idle(self) -> None:  # noqa: B027 - optional
        """Handle that nobody should wait for this task's watermark."""

    @property
    def is_full(self) -> bool:
        """True if the task should read no rows before :meth:`poll` has changed that."""
        return False

    @property
    def is_quiet(self) -> bool:
        """True if :meth:`poll` has nothing to emit, and will have nothing."""
        return True

    def poll(self, *, is_end: bool) -> bool:  # noqa: ARG002 - for overrides
        """Emit what other threads have finished; return False if that was nothing.

        Args:
            is_end: True if no further row follows.
        """
        return False

    @property
    def watermark_delay(self) -> int:
        """How far the watermark is behind for all that follows, in ms: rows that are emitted may be so much older."""
        return 0

    def flush(self) -> None:  # noqa: B027 - optional
        """Emit the rows that wait for others; called before a barrier or the end of all rows is sent on."""

    def end_input(self) -> None:  # noqa: B027 - optional
        """Handle the end of all rows, after the last watermark."""

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:  # noqa: B027 - optional
        """Freeze the state of a checkpoint; None if there is no state."""

    @property
    def has_state(self) -> bool:
        """True if a job that continues needs this operator's snapshot; False for what only commits."""
        return False

    def complete(self, checkpoint: int) -> None:  # noqa: B027 - optional
        """Handle that a checkpoint is complete."""

    def abort(self, checkpoint: int) -> None:  # noqa: B027 - optional
        """Handle that a checkpoint was given up. It may not have begun."""

    def unread_counter(self, output: str | None) -> str:  # noqa: ARG002 - for overrides
        """Return the counter of rows of an output that nothing reads."""
        return UNREAD

    @property
    def dropped(self) -> Mapping[str, int]:
        """The values that were dropped, by counter. Any thread may ask."""
        return {}

    @property
    def state_size(self) -> Mapping[str, int]:
        """The size of the state: ``keys``, and ``bytes_in_memory`` and ``bytes_in_files``. Any thread may ask."""
        return {}

    @property
    def files_in_flight(self) -> set[str]:
        """Files of earlier snapshots that those which are being written build on. Any thread may ask."""
        return set()

    def close(self) -> None:  # noqa: B027 - optional
        """Release everything; also after a failure, and after :meth:`open` failed."""


def instance_of(function: Any) -> Any:
    """Return an instance of a user's class: of the class itself, of a function that makes one, or a copy.

    Tasks in threads of one process must not share an instance.
    """
    return function() if is_maker(function) else copy.deepcopy(function)


def is_maker(function: Any) -> bool:
    """Return True for a class, and for a function that makes an instance of one."""
    return isinstance(function, type) or (callable(function) and not hasattr(function, "open"))
