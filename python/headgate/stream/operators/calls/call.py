"""One call, and rows of several that were converted together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class JointRows:
    """Rows of several calls, one of each, which were converted together.

    Attributes:
        rows: of all calls.
        size: bytes of a row, about.
    """

    rows: pa.RecordBatch
    size: float


@dataclass(slots=True, eq=False)
class Call:
    """One call, from when its rows are chosen until its result is sent.

    Attributes:
        first: number of its first row, by arrival at the task.
        call_id: see :class:`CallContext`.
        batch: has its rows.
        start: position of the first one.
        length: number of rows.
        size: bytes of its rows, then of its result, about.
        order: class of its key, where the order by key counts.
        failed: number of attempts that have failed.
        result: what the function returned, as the operator converts it, before the task has taken it.
        outcome: the rows of its result; None before it has ended. Only the task's thread sets it.
        error: that ended it.
        refused: its rows with the error, for the side output.
        group: its key group in the checkpoint that it comes from, if it had ended there; else that of its rows.
        digest: of its row, if results are remembered.
        joint: rows of which its result is one; None if its result is its own.
        place: of its row among these.
    """

    first: int
    call_id: str
    batch: pa.RecordBatch
    start: int
    length: int
    size: float
    order: int = 0
    failed: int = 0
    result: Any = None
    outcome: list[pa.RecordBatch] | None = None
    error: BaseException | None = None
    refused: pa.RecordBatch | None = None
    group: int | None = None
    digest: bytes = b""
    joint: JointRows | None = None
    place: int = 0

    @property
    def rows(self) -> pa.RecordBatch:
        """Its rows."""
        return self.batch.slice(self.start, self.length)
