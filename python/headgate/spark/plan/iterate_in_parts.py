"""Rounds of an iteration in parts, each a Spark job: for many rounds, and for rounds until nothing changes.

A plan of some hundred stages takes Spark longer than the rounds, and a plan cannot depend on rows. So the
driver runs a part, looks if its last round changed something, and plans the next part from a checkpoint.

Decision: ADR 0028.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from headgate.spark.confs import is_connect
from headgate.spark.plan.iterate_rounds import FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark.plan.request import Input

_LOG: Final = logging.getLogger("headgate.spark")
#: Most rounds of a part.
PART: Final = 100
#: Rounds of the first part of an iteration until nothing changes. Each part has twice as many as the one before.
_FIRST: Final = 10
_ENDED: Final = "iteration: unchanged within %d rounds"
_UNSETTLED: Final = (
    "iteration: the last of %d rounds still changed %d rows: give more rounds, or find out why it does "
    "not settle"
)


class Planned(Protocol):
    """Plans some rounds."""

    def __call__(
        self, state: Input, changed: Input | None, rounds: int, *, has_flag: bool, iteration: str
    ) -> DataFrame:
        """Return the state after the rounds.

        Args:
            state: the state before them.
            changed: the rows of it that the first ``send`` gets; None for all.
            rounds: number of rounds.
            has_flag: True for a column that says which rows the last round changed.
            iteration: name of the iteration whose part they are.
        """


@contextmanager
def _one_run(session: SparkSession) -> Iterator[str]:
    """Yield the name of an iteration. For as long as the context lasts, all parts of it are one run."""
    name = os.urandom(15).hex()
    if is_connect(session):
        yield name
        return
    from headgate.spark.driver.kept_watch import runs_of  # noqa: PLC0415 - not on Spark Connect

    with runs_of(session).iterating(name):
        yield name


def run_in_parts(
    planned: Planned,
    session: SparkSession,
    state: Input,
    rounds: int,
    *,
    has_delta: bool,
    is_until: bool,
) -> DataFrame:
    """Run the rounds in parts; return the state after the last one.

    Args:
        planned: plans a part.
        session: runs the parts.
        state: the first state.
        rounds: number of rounds, or the most if ``is_until``.
        has_delta: True if ``update`` returns only the rows that changed.
        is_until: True to end once a part's last round changed nothing.
    """
    done, part = 0, _FIRST if is_until else PART
    changed: Input | None = None
    with _one_run(session) as iteration:
        while True:
            number = min(part, rounds - done)
            state_after = _checkpoint(
                planned(state, changed, number, has_flag=has_delta, iteration=iteration)
            )
            done, part = done + number, min(2 * part, PART)
            result = state_after.drop(FLAG) if has_delta else state_after
            rows = state_after.where(state_after[FLAG]).count() if has_delta else 0
            if is_until and not rows:
                _LOG.info(_ENDED, done)
                return result
            if done == rounds:
                if rows:
                    _LOG.warning(_UNSETTLED, done, rows)
                return result
            # A map of the first state has made its rows already.
            state = replace(state, data=result, map=None, map_schema=None)
            if has_delta:
                changed = replace(state, data=state_after.where(state_after[FLAG]).drop(FLAG))


def _checkpoint(df: DataFrame) -> DataFrame:
    """Run a part and keep its rows, so that no plan contains it."""
    context = getattr(df.sparkSession, "_sc", None)
    has_folder = context is not None and context._jsc.sc().getCheckpointDir().isDefined()  # noqa: SLF001 - no public way
    return df.checkpoint() if has_folder else df.localCheckpoint()
