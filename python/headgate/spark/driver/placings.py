"""Rows whose place depends on timing: no two epochs or runs of them are mixed. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import errors
from headgate.spark.driver.remembered import Remembered
from headgate.spark.wire.cause import Cause

if TYPE_CHECKING:
    from headgate.spark.driver.members import Consumer
    from headgate.spark.driver.run import Run


class Placings:
    """Which exchanges may place the same row differently next time, and what they yielded already."""

    def __init__(self) -> None:
        self._unrepeatable: set[bytes] = set()
        self._yielded = Remembered[None]()

    def are_unrepeatable(self, exchange_id: bytes) -> None:
        """Take note that an exchange places rows by their order, and its input has none, or the like."""
        self._unrepeatable.add(exchange_id)

    def yielded(self, consumer: Consumer) -> None:
        """Take note that Spark has all rows of a partition."""
        if consumer.exchange_id in self._unrepeatable:
            self._yielded.note((consumer.exchange_id, consumer.stage), None)

    def would_mix(self, run: Run) -> Cause | None:
        """Return why a run may not begin; None when it may."""
        if (run.exchange_id, run.stage) not in self._yielded:
            return None
        return Cause(
            errors.IntegrityError.code,
            "rows would be placed anew, but other partitions of this result were yielded already",
            asked=f"partitions {', '.join(map(str, sorted(run.indexes)[:8]))} once more",
            have="a placing that depends on the order in which rows come",
            remedy="by= a column or columns · an input in a fixed order, as files have"
            " · cache() the input",
        )
