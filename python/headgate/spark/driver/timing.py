"""All waits of the coordinator, in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the coordinator waits, and for what, in seconds.

    Attributes:
        handshake: for the handshake of a connection, whose worker may be stopped meanwhile.
        quiet: without a new consumer, until a run is formed of those that wait.
        better_cause: for a better cause than what a worker saw of a peer: which process was lost.
        keep_job: until the job of an epoch with such a cause is cancelled. Afterwards Spark reports
            each task as killed, also one whose process was lost before.
        cancel_again: between two cancellations of a job: Spark may submit it after its tag was
            cancelled.
        finish: for producers to end once no consumer needs rows; then their job is cancelled.
        verdict: for Spark's status of a task whose connection closed.
        outcome: for Spark's status of a task that stopped early.
        deadlock: with waiting consumers on all slots, until one run fails.
        stall: without any movement beside free slots, until a run fails.
        report: of waiting, until the log says so, and between two reports.
        repeat: between two reports on a run whose rows do not move.
        worrying: of waiting, until the report is a warning.
    """

    handshake: float = 12.0
    quiet: float = 1.0
    better_cause: float = 2.0
    keep_job: float = 0.5
    cancel_again: float = 1.0
    finish: float = 2.0
    verdict: float = 3.0
    outcome: float = 60.0
    deadlock: float = 2.0
    stall: float = 60.0
    report: float = 10.0
    repeat: float = 60.0
    worrying: float = 30.0
