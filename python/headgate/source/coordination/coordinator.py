"""The coordinator of one source: runs the enumerator and handles the readers' messages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.errors import ClosedError, HeadgateError, OptionError, SourceError, StateVersionError
from headgate.source.api.enumerator import ReaderInfo, SplitEnumerator
from headgate.source.api.split import SourceSplit
from headgate.source.coordination.alignment import AlignmentGroups, WatermarkAggregator
from headgate.source.coordination.context import CoordinatorContext, Gateway

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.source import Source
    from headgate.source.coordination.thread import EnumeratorExecutor
    from headgate.source.watermark.strategy import WatermarkStrategy

_LOG: Final = logging.getLogger("headgate.source")

SplitT = TypeVar("SplitT", bound=SourceSplit)
CheckpointT = TypeVar("CheckpointT")
CheckpointCallback = Callable[[bytes | None, HeadgateError | None], None]

_VERSION_BYTES: Final = 4


class SourceCoordinator(Generic[SplitT, CheckpointT]):
    """Drives one enumerator on the coordinator's thread, and tracks its assigned splits.

    Every method may be called from any thread and returns at once. Its work runs on the
    coordinator's thread, in the order of the calls. An exception of the enumerator is passed to
    ``gateway.failed`` once; afterwards only :meth:`close` has an effect.

    Args:
        source: creates the enumerator.
        parallelism: the number of readers; they are numbered from 0.
        gateway: sends messages to the readers.
        executor: runs the enumerator; coordinators may share it.
        watermarks: aligns the readers if the strategy has an alignment group.
        groups: the alignment groups of the job, if several of its sources are aligned.
        skip_delays: True to run at once the work that the enumerator's ``start()`` delays.

    Raises:
        OptionError: the parallelism is less than 1.
    """

    def __init__(
        self,
        source: Source[Any, SplitT, CheckpointT],
        parallelism: int,
        gateway: Gateway,
        executor: EnumeratorExecutor,
        *,
        watermarks: WatermarkStrategy | None = None,
        groups: AlignmentGroups | None = None,
        skip_delays: bool = False,
    ) -> None:
        if parallelism < 1:
            raise OptionError(
                f"parallelism={parallelism} is less than 1",
                asked=f"parallelism={parallelism}",
                remedy="parallelism=1",
            )
        self._source = source
        self._name = source.name
        self._parallelism = parallelism
        self._gateway = gateway
        self._executor = executor
        self._alignment = watermarks.alignment if watermarks is not None else None
        self._groups = groups if groups is not None else AlignmentGroups()
        self._reported: WatermarkAggregator[int] = WatermarkAggregator()
        self._enumerator: SplitEnumerator[SplitT, CheckpointT] | None = None
        self._context: CoordinatorContext[SplitT] = CoordinatorContext(
            source,
            parallelism,
            gateway,
            executor,
            run=self._run,
            is_over=lambda: self._is_over,
            skip_delays=skip_delays,
            has_watermarks=watermarks is not None and watermarks.generator is not None,
        )
        self._is_closed = False
        self._failure: HeadgateError | None = None
        self._ended = threading.Event()
        self._waiting: dict[object, CheckpointCallback] = {}
        #: Splits that ended since the last complete checkpoint, by reader.
        self._finished: dict[int, set[str]] = {}
        self._finished_before = 0
        self._total: int | None = None
        self._at = ""

    # For progress reports and errors; from any thread.

    @property
    def total_splits(self) -> int | None:
        """The number of splits as the enumerator last reported it; None if it is not known."""
        return self._total

    @property
    def finished_splits(self) -> int:
        """The number of finished splits, without a lost reader's since the last checkpoint."""
        return self._finished_before + sum(map(len, list(self._finished.values())))

    @property
    def is_processing_backlog(self) -> bool:
        """True while the enumerator reports that readers catch up on old data."""
        return self._context.is_processing_backlog

    @property
    def callback_at_work(self) -> str:
        """The enumerator's callback that runs now, or an empty string."""
        return self._at

    @property
    def takes_events(self) -> bool:
        """True if the enumerator has a use for events of readers."""
        handles = type(self._running).handle_source_event
        return handles is not SplitEnumerator.handle_source_event

    # Called by the job and its readers; from any thread.

    def start(self, checkpoint: bytes | None = None) -> None:
        """Create the enumerator, or restore it from a :meth:`checkpoint`, and start it."""
        self._post("start", lambda: self._start(checkpoint))

    def register_reader(self, subtask: int, location: str) -> None:
        """Register a reader; a registered reader with the same number counts as lost first.

        Raises:
            ValueError: the number is not below the parallelism.
        """
        if not 0 <= subtask < self._parallelism:
            raise ValueError(f"reader {subtask} of {self._parallelism} readers")
        self._post("add_splits_back", lambda: self._lose(subtask))
        self._post("add_reader", lambda: self._register(ReaderInfo(subtask, location)))

    def request_split(self, subtask: int, hostname: str | None) -> None:
        """Pass on a request, unless the reader is lost or was told that no split follows."""

        def request() -> None:
            if subtask in self._context.readers and subtask not in self._context.told_no_more:
                self._running.handle_split_request(subtask, hostname)

        self._post("handle_split_request", request)

    def source_event(self, subtask: int, event: SourceEvent) -> None:
        """Pass on a reader's event, unless the reader is lost."""

        def pass_on() -> None:
            if subtask in self._context.readers:
                self._running.handle_source_event(subtask, event)

        self._post("handle_source_event", pass_on)

    def report_watermark(self, subtask: int, watermark_ms: int) -> None:
        """Record a reader's watermark; ``MAX_WATERMARK`` means that the reader is idle."""
        self._post("report_watermark", lambda: self._align(subtask, watermark_ms))

    def splits_finished(self, subtask: int, split_ids: Sequence[str]) -> None:
        """Record the splits that a reader has finished."""

        def finish() -> None:
            if (
                subtask in self._context.readers
            ):  # Else they returned to the enumerator and are read again.
                self._finished.setdefault(subtask, set()).update(split_ids)

        self._post("splits_finished", finish)

    def checkpoint(self, checkpoint_id: int, callback: CheckpointCallback) -> None:
        """Take a checkpoint; ids start at 1 and grow.

        Args:
            checkpoint_id: the checkpoint's number.
            callback: gets the bytes or the error, exactly once, on the coordinator's thread; or on
                the caller's thread if the coordinator is closed or has failed. No split is
                assigned between the snapshot and the callback.
        """
        token = object()
        self._waiting[token] = callback

        def take() -> None:
            data = self._snapshot(checkpoint_id)
            if (waiting := self._waiting.pop(token, None)) is not None:
                waiting(data, None)

        if not self._post("snapshot_state", take) or self._is_over:
            self._answer_waiting()

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Complete a checkpoint: splits that it covers never return to the enumerator."""

        def complete() -> None:
            self._context.tracker.complete(checkpoint_id)
            self._finished_before = self.finished_splits
            self._finished.clear()
            self._running.notify_checkpoint_complete(checkpoint_id)

        self._post("notify_checkpoint_complete", complete)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Abort a checkpoint; a later one covers its splits."""
        self._post(
            "notify_checkpoint_aborted",
            lambda: self._running.notify_checkpoint_aborted(checkpoint_id),
        )

    def close(self, timeout: float = 30.0) -> None:
        """Close the enumerator; no message is sent to readers afterwards. May be called twice.

        Args:
            timeout: seconds to wait for the running callback and for the enumerator's close; 0 to
                return at once.
        """
        self._is_closed = True
        if self._executor.is_current:
            self._close_now()
        elif (
            self._executor.execute(self._close_now)
            and timeout > 0
            and not self._ended.wait(timeout)
        ):
            at = self._at or "a callback of another enumerator on the same thread"
            _LOG.warning(
                "the enumerator of %s did not close within %g s; running: %s",
                self._name,
                timeout,
                at,
            )
        self._answer_waiting()

    # On the coordinator's thread.

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._failure is not None

    @property
    def _running(self) -> SplitEnumerator[SplitT, CheckpointT]:
        if self._enumerator is None:
            raise ClosedError(f"the coordinator of {self._name} was not started")
        return self._enumerator

    def _post(self, callback: str, action: Callable[[], None]) -> bool:
        return self._executor.execute(lambda: self._run(callback, action))

    def _run(self, callback: str, action: Callable[[], None]) -> None:
        if self._is_over:
            return
        self._at = callback
        try:
            action()
            if self._enumerator is not None:
                self._total = self._enumerator.total_splits
        except BaseException as error:  # noqa: BLE001 - passed to the gateway
            self._fail(callback, error)
        finally:
            self._at = ""

    def _start(self, checkpoint: bytes | None) -> None:
        if checkpoint is None:
            self._enumerator = self._source.create_enumerator(self._context)
        else:
            state = self._restored(checkpoint)
            self._enumerator = self._source.restore_enumerator(self._context, state)
        self._enumerator.start()
        self._context.is_starting = False
        if self._alignment is not None:
            interval = self._alignment.update_interval
            self._context.every(interval, interval, self._announce)

    def _restored(self, checkpoint: bytes) -> CheckpointT:
        if len(checkpoint) < _VERSION_BYTES:
            raise StateVersionError(
                f"a checkpoint of {len(checkpoint)} bytes is too short for {self._name}"
            )
        version = int.from_bytes(checkpoint[:_VERSION_BYTES], "big")
        serializer = self._source.enumerator_checkpoint_serializer
        return serializer.deserialize(version, checkpoint[_VERSION_BYTES:])

    def _register(self, reader: ReaderInfo) -> None:
        self._context.readers[reader.subtask_id] = reader
        self._running.add_reader(reader.subtask_id)

    def _lose(self, subtask: int) -> None:
        context = self._context
        if context.readers.pop(subtask, None) is None:
            return
        context.told_no_more.discard(subtask)
        self._reported.forget(subtask)
        self._report_to_group()
        splits = context.tracker.reset(subtask, context.tracker.complete_checkpoint)
        self._finished.pop(subtask, None)
        self._running.add_splits_back(splits, subtask)

    def _snapshot(self, checkpoint_id: int) -> bytes:
        state = self._running.snapshot_state(checkpoint_id)
        serializer = self._source.enumerator_checkpoint_serializer
        data = serializer.version.to_bytes(_VERSION_BYTES, "big") + serializer.serialize(state)
        self._context.tracker.snapshot(checkpoint_id)
        return data

    def _align(self, subtask: int, watermark_ms: int) -> None:
        if self._alignment is not None and subtask in self._context.readers:
            self._reported.report(subtask, watermark_ms)
            self._report_to_group()

    def _report_to_group(self) -> None:
        if self._alignment is None:
            return
        least = self._reported.minimum
        if least is None:
            self._groups.forget(self._alignment.group, self)
        else:
            self._groups.report(self._alignment.group, self, least)

    def _announce(self) -> None:
        if self._alignment is None or self._is_over:
            return
        allowed = self._groups.max_allowed(self._alignment.group, self._alignment.max_drift_ms)
        if allowed is not None:
            # Also to readers that get no further split: they may wait with those that they have.
            for subtask in self._reported.keys:
                self._gateway.align(subtask, allowed)

    def _fail(self, callback: str, error: BaseException) -> None:
        if self._is_over:
            _LOG.debug("%s of %s, which is closed, failed", callback, self._name, exc_info=error)
            return
        self._failure = self._as_source_error(callback, error)
        self._context.cancel_timers()
        self._answer_waiting()
        self._gateway.failed(self._failure)

    def _as_source_error(self, callback: str, error: BaseException) -> HeadgateError:
        if isinstance(error, StateVersionError):
            return error
        cause = error if isinstance(error, HeadgateError) else None
        text = cause.summary if cause else f"{type(error).__name__}: {error}"
        failure = SourceError(
            f"the enumerator of {self._name} failed in {callback}: {text}",
            asked=cause.asked if cause else "",
            have=cause.have if cause else "",
            remedy=cause.remedy if cause else "",
            details={"source": self._name, "callback": callback},
        )
        failure.__cause__ = error
        return failure

    def _answer_waiting(self) -> None:
        """Answer all waiting checkpoints with an error."""
        error = self._failure or ClosedError(f"the coordinator of {self._name} is closed")
        while self._waiting:
            try:
                _, callback = self._waiting.popitem()
            except KeyError:
                return
            callback(None, error)

    def _close_now(self) -> None:
        self._is_closed = True
        self._context.close()
        if self._alignment is not None:
            self._groups.forget(self._alignment.group, self)
        enumerator, self._enumerator = self._enumerator, None
        self._at = "close"
        try:
            if enumerator is not None:
                enumerator.close()
        except BaseException:  # noqa: BLE001 - logged; other coordinators share this thread
            _LOG.exception("the enumerator of %s failed in close", self._name)
        finally:
            self._at = ""
            self._answer_waiting()
            self._ended.set()
