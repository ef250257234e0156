"""A snapshot of the last run, and of its tasks while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.spark.run import RunState

if TYPE_CHECKING:
    from headgate.spark.run import Run


@dataclass(frozen=True, slots=True)
class ExchangeStats:
    """What one run of an exchange did.

    Attributes:
        exchange_id: of the exchange, in hex.
        run: number of the run in this application.
        epoch: attempt of the run.
        state: ``"done"``, ``"failed"`` or ``"cancelled"``; ``"running"`` while anybody wants more.
        error: code of the first cause, or ``""``.
        seconds: from the last consumer's arrival to the end.
        producers: producer tasks whose rows were taken.
        consumers: consumer tasks; fewer than partitions when some were handed over.
        rows: rows sent.
        bytes: bytes of pages sent.
        pages: buffers sent.
        rows_received: rows read; fewer than sent after a LIMIT.
        peak_bytes: the largest use of a pool in any one process.
    """

    exchange_id: str
    run: int
    epoch: int
    state: str
    error: str
    seconds: float
    producers: int
    consumers: int
    rows: int
    bytes: int
    pages: int
    rows_received: int
    peak_bytes: int


def snapshot(run: Run, now: float) -> ExchangeStats:
    """Return what is known of a run; ``now`` as the run's own clock."""
    producers, consumers = list(run.producers.values()), list(run.consumers.values())
    state = "done" if run.state is RunState.FINISHING else "running"
    if run.is_over:
        cancelled = run.cause is not None and run.cause.is_cancelled
        state = "done" if run.cause is None else "cancelled" if cancelled else "failed"
    return ExchangeStats(
        exchange_id=run.exchange_id.hex(),
        run=run.number,
        epoch=run.epoch,
        state=state,
        error="" if run.cause is None else run.cause.code,
        seconds=(run.ended_at or now) - run.started,
        producers=sum(p.is_done for p in producers),
        consumers=len(consumers),
        rows=sum(p.rows for p in producers),
        bytes=sum(p.bytes for p in producers),
        pages=sum(p.pages for p in producers),
        rows_received=sum(c.rows for c in consumers),
        peak_bytes=max((m.peak for m in (*producers, *consumers)), default=0),
    )
