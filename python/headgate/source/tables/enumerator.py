"""The enumerator of a table: plans its versions off the coordinator's thread, and assigns splits on request."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.source.api import SplitEnumerator, SplitEnumeratorContext
from headgate.source.tables.split import TableCheckpoint, TableSplit


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The splits of one or more versions of a table.

    Attributes:
        table: the id of the table.
        since: the version after which this plan begins; None for the first plan.
        version: the version at which it ends.
        splits: of the files, in the order in which they are handed out.
    """

    table: str
    since: int | None
    version: int
    splits: Sequence[TableSplit]


@dataclass(frozen=True, slots=True)
class TableWork:
    """Work that may block, and so runs outside the enumerator's thread.

    Attributes:
        plan: gets the id of the table, the version up to which it was planned, and the number of readers.
        interval: seconds between two looks for new versions; None to look once.
        looks_again: True to look for new versions after a restore too.
    """

    plan: Callable[[str, int | None, int], TablePlan]
    interval: float | None
    looks_again: bool


class TableEnumerator(SplitEnumerator[TableSplit, TableCheckpoint]):
    """Assigns splits in the order of the versions. Its state has the version up to which all splits were made."""

    def __init__(
        self,
        context: SplitEnumeratorContext[TableSplit],
        checkpoint: TableCheckpoint,
        work: TableWork,
    ) -> None:
        self._context, self._work = context, work
        self._table, self._version = checkpoint.table, checkpoint.version
        self._num_splits = checkpoint.num_splits
        self._pending = deque(TableSplit(*fields) for fields in checkpoint.pending)
        self._is_planned = checkpoint.version is not None and not work.looks_again
        self._waiting: dict[int, None] = {}

    def start(self) -> None:
        """Plan the first version, or those after the checkpoint."""
        if self._work.interval is not None or not self._is_planned:
            self._context.call_async(self._plan, self._on_plan, 0.0, self._work.interval)

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:  # noqa: ARG002 - any host
        """Answer now, or when there are splits."""
        self._waiting[subtask_id] = None
        self._answer()

    def add_splits_back(self, splits: Sequence[TableSplit], subtask_id: int) -> None:
        """Keep the splits of a lost reader for the next request."""
        self._waiting.pop(subtask_id, None)
        self._pending.extendleft(reversed(splits))
        self._answer()

    def add_reader(self, subtask_id: int) -> None:
        """Do nothing until the reader requests a split."""

    def snapshot_state(self, checkpoint_id: int) -> TableCheckpoint:  # noqa: ARG002 - unused
        """Return the version, and the splits that no reader has."""
        pending = tuple(dataclasses.astuple(split) for split in self._pending)
        return TableCheckpoint(self._table, self._version, self._num_splits, pending)

    @property
    def total_splits(self) -> int | None:
        """The number of splits, once they are planned; None while versions may come."""
        return self._num_splits if self._is_complete else None

    def close(self) -> None:
        """Drop the waiting requests."""
        self._waiting.clear()

    @property
    def _is_complete(self) -> bool:
        return self._is_planned and self._work.interval is None

    def _plan(self) -> TablePlan:
        return self._work.plan(
            self._table, self._version, max(1, self._context.current_parallelism)
        )

    def _on_plan(self, plan: TablePlan | None, error: BaseException | None) -> None:
        if error is not None or plan is None:
            raise error or RuntimeError("a plan without result")
        if plan.since != self._version:
            return  # It began before the plan ahead of it was taken over, so it has the same files.
        self._table, self._version, self._is_planned = plan.table, plan.version, True
        self._num_splits += len(plan.splits)
        self._pending.extend(plan.splits)
        self._answer()

    def _answer(self) -> None:
        for subtask_id in list(self._waiting):
            if subtask_id not in self._context.registered_readers:
                del self._waiting[subtask_id]
            elif self._pending:
                del self._waiting[subtask_id]
                self._context.assign_split(self._pending.popleft(), subtask_id)
            elif self._is_complete:
                del self._waiting[subtask_id]
                self._context.signal_no_more_splits(subtask_id)
