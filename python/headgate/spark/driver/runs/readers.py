"""The readers of a run whose producers read a source, and their splits. No sockets, no Spark.

See docs/adr/0008-split-requests-over-the-control-connection.md.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate import errors
from headgate.control.cause import Cause
from headgate.errors import ProtocolError
from headgate.spark.driver.runs.losses import is_gone
from headgate.spark.driver.runs.members import Producer, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.driver.runs.roster import Roster
    from headgate.spark.wire.messages import Message

#: Most splits that an error names, and most characters of each.
_NAMED: Final = 5
_NAME: Final = 150


class Enumeration(Protocol):
    """The enumerator of one epoch, for the coordinator's thread: no method may block."""

    @property
    def name(self) -> str:
        """The source's name."""

    @property
    def total_splits(self) -> int | None:
        """The number of splits, if it is known."""

    def start(self) -> None:
        """Begin."""

    def register(self, subtask: int, attempt: int, host: str) -> None:
        """Register a reader; ``attempt`` is the task that now runs the subtask."""

    def lost(self, subtask: int) -> None:
        """Handle the loss of a reader of which nothing reached a consumer."""

    def request(self, subtask: int, host: str) -> None:
        """Handle a reader's request for a split."""

    def finished(self, subtask: int, ids: list[str]) -> None:
        """Handle splits that were read to their end."""

    def event(self, subtask: int, fields: dict[str, Any]) -> None:
        """Handle a reader's event."""

    def watermark(self, subtask: int, ms: int) -> None:
        """Handle a reader's watermark, for the alignment of splits."""

    def close(self) -> None:
        """Close the enumerator."""


class ReadersRun(Protocol):
    """The run of readers, as far as they need it."""

    #: True once its producers read a source.
    reads_splits: bool
    splits_done: int
    splits_total: int | None
    roster: Roster

    @property
    def is_over(self) -> bool:
        """True once the run has ended."""

    def fail(self, cause: Cause) -> None:
        """End the run."""


class Readers:
    """The readers of one run and their splits; owned by the coordinator's thread.

    A reader that is lost before its partition is registered has sent no row: its splits go back to
    the enumerator, and the next attempt of its task takes over. Later, consumers may have rows of it,
    and its loss ends the epoch.

    Args:
        run: the run whose producers are the readers.
        enumeration: the enumerator of this run alone.
    """

    def __init__(self, run: ReadersRun, enumeration: Enumeration) -> None:
        self._run = run
        self._enumeration = enumeration
        self._given: dict[int, dict[str, None]] = defaultdict(dict)
        self._done: dict[int, set[str]] = defaultdict(set)
        #: Partition -> cause, for lost readers without a further attempt.
        self.losses: dict[int, Cause] = {}
        run.reads_splits = True

    def start(self) -> None:
        """Start the enumerator."""
        self._enumeration.start()

    def close(self) -> None:
        """End the enumerator."""
        self.count()
        self._enumeration.close()

    def count(self) -> None:
        """Update the numbers of splits in the run."""
        self._run.splits_done = sum(len(done) for done in self._done.values())
        total = self._enumeration.total_splits
        self._run.splits_total = self._run.splits_total if total is None else total

    def said(self, producer: Producer, message: Message) -> None:
        """Pass a reader's message to the enumerator.

        Raises:
            ProtocolError: it registers twice, or speaks before it has registered.
        """
        if producer.state is not State.LIVE or self._run.is_over:
            return
        subtask = producer.partition
        if (message.kind == "READER") == bool(producer.host):
            raise ProtocolError(f"an unexpected {message.kind} message of a reader")
        match message.kind:
            case "READER":
                producer.host = message["host"] or "?"
                self._enumeration.register(subtask, producer.attempt, producer.host)
            case "SPLIT_REQUEST":
                self._enumeration.request(subtask, message["host"])
            case "SPLITS_FINISHED":
                self._done[subtask].update(message["ids"])
                self._enumeration.finished(subtask, list(message["ids"]))
            case "SOURCE_EVENT":
                self._enumeration.event(subtask, dict(message.fields))
            case "WATERMARK":
                self._enumeration.watermark(subtask, message["ms"])

    def tell(self, subtask: int, attempt: int, kind: str, fields: dict[str, Any]) -> None:
        """Send a reader a message of the enumerator, unless another attempt has taken over.

        Splits that were for a lost attempt have gone back to the enumerator.
        """
        producer = self._run.roster.producers.get(subtask)
        if self._run.is_over or producer is None or producer.attempt != attempt:
            return
        if kind == "ASSIGN":
            ids = [split[0] for split in fields["splits"]]
            if producer.state is State.DONE:
                self._run.fail(self._too_late(subtask, ids))
                return
            self._given[subtask].update(dict.fromkeys(ids))
        if producer.state is State.LIVE:
            self._run.roster.send(producer, kind, fields)

    def lost(self, producer: Producer) -> None:
        """Return the splits of a lost reader to the enumerator."""
        producer.state = State.LOST
        self.losses[producer.partition] = self.loss(producer, "")
        self._given.pop(producer.partition, None)
        self._done.pop(producer.partition, None)
        if producer.host:
            self._enumeration.lost(producer.partition)

    @staticmethod
    def may_replace(first: Producer) -> bool:
        """Return True if no consumer can have rows of a lost reader, so that another may begin anew."""
        return first.state in {State.LOST, State.FAILED} and not first.place

    def replaced(self, producer: Producer) -> None:
        """Drop the loss of a reader: a further attempt has come."""
        self.losses.pop(producer.partition, None)

    def unfinished(self, subtask: int) -> list[str]:
        """Return the ids of the splits that a reader has and has not read to their end."""
        done = self._done.get(subtask, set())
        return [split for split in self._given.get(subtask, {}) if split not in done]

    def loss(self, producer: Producer, text: str) -> Cause:
        """Return the cause for a lost or failed reader.

        Args:
            producer: its task.
            text: Spark's error text for the task.
        """
        where = (
            f"reader {producer.partition} of source {self._enumeration.name!r} on "
            f"{producer.host or 'an unknown host'} "
            f"(stage {producer.stage}, task {producer.attempt})"
        )
        splits = _words(self.unfinished(producer.partition))
        if is_gone(text):
            summary = f"a reader is gone without a goodbye: {where}; {splits}"
            return Cause(errors.PeerLostError.code, summary, text=text, where=where)
        summary = f"a reader failed in Spark, outside of Headgate: {where}; {splits}"
        return Cause(errors.ProducerFailedError.code, summary, text=text, where=where)

    def better(self, error: Cause) -> Cause:
        """Return the loss that made Spark give up the job; the job's own error if there is none.

        Spark retries tasks before, so only losses without a further attempt count.
        """
        if not error.is_second_hand or not self.losses:
            return error
        loss = next(iter(self.losses.values()))
        return Cause(loss.code, loss.summary, text=error.text, where=loss.where)

    def _too_late(self, subtask: int, ids: list[str]) -> Cause:
        name = self._enumeration.name
        return Cause(
            errors.SourceError.code,
            f"source {name!r} gave splits to reader {subtask}, which had ended: {_words(ids)}",
            remedy="no assign_splits() after signal_no_more_splits() for the same reader",
        )


def _words(ids: Iterable[str]) -> str:
    ids = list(ids)
    if not ids:
        return "no unfinished splits"
    named = ", ".join(
        name if len(name) <= _NAME else "..." + name[-_NAME:] for name in ids[:_NAMED]
    )
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"unfinished splits: {named}{more}"
