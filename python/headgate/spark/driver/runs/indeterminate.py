"""Exchanges that may place a row differently when they run again. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import errors
from headgate.control.cause import Cause
from headgate.spark.driver.runs.bounded import BoundedDict

if TYPE_CHECKING:
    from headgate.spark.driver.runs.members import Consumer
    from headgate.spark.driver.runs.run import Run


class IndeterminateExchanges:
    """Exchanges whose placement of rows depends on timing, and their stages with finished partitions.

    Partitions of two runs of such an exchange must never be parts of one result: a row could be in
    both or in neither.
    """

    def __init__(self) -> None:
        self._exchanges: set[bytes] = set()
        self._yielded = BoundedDict[None]()

    def add(self, exchange_id: bytes) -> None:
        """Mark an exchange: it places rows by their order and its input has none, for example."""
        self._exchanges.add(exchange_id)

    def drop(self, exchange_id: bytes) -> None:
        """Forget an exchange."""
        self._exchanges.discard(exchange_id)
        self._yielded.drop(exchange_id)

    def yielded(self, consumer: Consumer) -> None:
        """Record that Spark has all rows of a partition."""
        if consumer.exchange_id in self._exchanges:
            self._yielded.add(consumer.key, None)

    def refusal(self, run: Run) -> Cause | None:
        """Return why a run must not begin; None if it may."""
        if run.key not in self._yielded:
            return None
        return Cause(
            errors.IntegrityError.code,
            "a new run could place rows differently, but other partitions of this result are done",
            asked=f"partitions {', '.join(map(str, sorted(run.roster.consumers)[:8]))} once more",
            have="rows are placed by the order in which they come",
            remedy="by= a column or columns · an input in a fixed order, as files have"
            " · cache() the input",
        )
