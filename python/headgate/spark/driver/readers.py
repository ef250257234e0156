"""The readers of a run whose producers read a source: who has which splits. No sockets, no Spark."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate import errors
from headgate.errors import ProtocolError
from headgate.spark.driver.members import Producer, State
from headgate.spark.wire.cause import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.driver.run import Run
    from headgate.spark.wire.messages import Message

#: Most splits that an error names, and most characters of each.
_NAMED: Final = 5
_NAME: Final = 150


class Enumeration(Protocol):
    """The enumerator of a run, as the coordinator's thread sees it: nothing here may block."""

    @property
    def name(self) -> str:
        """The source's name."""

    @property
    def total_splits(self) -> int | None:
        """How many splits there are in all, where that is known."""

    def start(self) -> None:
        """Begin."""

    def register(self, subtask: int, attempt: int, host: str) -> None:
        """A reader is there; ``attempt`` is the task that now stands for the subtask."""

    def lost(self, subtask: int) -> None:
        """A reader is gone, and nothing of it reached a consumer."""

    def request(self, subtask: int, host: str) -> None:
        """A reader wants a split."""

    def finished(self, subtask: int, ids: list[str]) -> None:
        """A reader has read splits to their end."""

    def event(self, subtask: int, fields: dict[str, Any]) -> None:
        """A reader says something that the enumerator understands."""

    def watermark(self, subtask: int, ms: int) -> None:
        """A reader's watermark, for the alignment of all."""

    def close(self) -> None:
        """The run is over."""


class Readers:
    """What readers said and were told in one run; owned by the coordinator's thread.

    A reader that is lost before its partition was registered has given nothing to anybody: its
    splits go back to the enumerator, and the next attempt of its task takes over. Later its rows may
    be at consumers already, and the run fails.

    Args:
        run: whose producers are readers.
        enumeration: the enumerator of this run alone.
    """

    def __init__(self, run: Run, enumeration: Enumeration) -> None:
        self._run = run
        self._enumeration = enumeration
        self._given: dict[int, dict[str, None]] = defaultdict(dict)
        self._done: dict[int, set[str]] = defaultdict(set)
        #: Readers that were lost and of which no further attempt has come: partition -> why.
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
        """Write down how far the run is."""
        self._run.splits_done = sum(len(done) for done in self._done.values())
        total = self._enumeration.total_splits
        self._run.splits_total = self._run.splits_total if total is None else total

    def said(self, producer: Producer, message: Message) -> None:
        """Pass on what a reader says.

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
        """Tell a reader what the enumerator said; nothing when another attempt has its place.

        What was for a lost attempt needs no answer: its splits have gone back.
        """
        producer = self._run.producers.get(subtask)
        if self._run.is_over or producer is None or producer.attempt != attempt:
            return
        if kind == "ASSIGN":
            ids = [split[0] for split in fields["splits"]]
            if producer.state is State.DONE:
                self._run.fail(self._too_late(subtask, ids))
                return
            self._given[subtask].update(dict.fromkeys(ids))
        if producer.state is State.LIVE:
            self._run.send(producer, kind, fields)

    def lost(self, producer: Producer) -> None:
        """Take back what a reader had that never registered its partition."""
        producer.state = State.LOST
        self.losses[producer.partition] = self.loss(producer, "")
        self._given.pop(producer.partition, None)
        self._done.pop(producer.partition, None)
        if producer.host:
            self._enumeration.lost(producer.partition)

    @staticmethod
    def may_replace(first: Producer) -> bool:
        """Whether nothing of a lost reader can be at a consumer, so that another may begin anew."""
        return first.state in {State.LOST, State.FAILED} and not first.place

    def replaced(self, producer: Producer) -> None:
        """A further attempt of a lost reader has come."""
        self.losses.pop(producer.partition, None)

    def unfinished(self, subtask: int) -> list[str]:
        """Return the ids of the splits that a reader has and has not read to their end."""
        done = self._done.get(subtask, set())
        return [split for split in self._given.get(subtask, {}) if split not in done]

    def loss(self, producer: Producer, text: str) -> Cause:
        """Return the cause that a reader's end without a goodbye, or in Spark, is.

        Args:
            producer: its task.
            text: what Spark says of it.
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
        """Return the loss that made Spark give the job up; the job's own error where there is none.

        Spark tries a task again before that, so only the losses that nobody made good count.
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


def is_gone(text: str) -> bool:
    """Whether Spark's words for a failed task mean that its process is gone."""
    return not text or "exited unexpectedly" in text or "ExecutorLost" in text


def _words(ids: Iterable[str]) -> str:
    ids = list(ids)
    if not ids:
        return "no unfinished splits"
    named = ", ".join(
        name if len(name) <= _NAME else "..." + name[-_NAME:] for name in ids[:_NAMED]
    )
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"unfinished splits: {named}{more}"
