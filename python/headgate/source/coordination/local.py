"""A coordinator and its readers in one process: their messages, and their checkpoint."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError, StateVersionError
from headgate.source.coordination.context import check_event
from headgate.source.runtime.context import PlacedReaderContext

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.coordination.coordinator import SourceCoordinator
    from headgate.source.runtime.operator import SourceOperator

#: The first bytes of a checkpoint: its kind, and the version of its layout.
_MAGIC: Final = b"HGLR\x01"
_NUMBER: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """The state of the enumerator, and the unfinished splits of the readers.

    Attributes:
        enumerator: the coordinator's checkpoint.
        split_version: the version of the split serializer that wrote the splits.
        splits: ids and bytes of the readers' unfinished splits.
    """

    enumerator: bytes
    split_version: int
    splits: Sequence[tuple[str, bytes]]

    def to_bytes(self) -> bytes:
        """Return magic, split version, number of parts; then each part after its length.

        All numbers have 8 bytes, big-endian. The first part is the enumerator's; id and bytes of
        each split follow.
        """
        parts = [self.enumerator]
        for split_id, data in self.splits:
            parts += [split_id.encode(), data]
        head = _MAGIC + _NUMBER.pack(self.split_version) + _NUMBER.pack(len(parts))
        return head + b"".join(_NUMBER.pack(len(part)) + part for part in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> LocalCheckpoint:
        """Return the checkpoint that :meth:`to_bytes` wrote.

        Raises:
            StateVersionError: the bytes are not a checkpoint, or not a complete one.
        """
        if data[: len(_MAGIC)] != _MAGIC:
            raise StateVersionError(
                "these bytes are no checkpoint of a local read",
                have=f"{len(data)} bytes that begin with {bytes(data[:8])!r}",
                remedy="pass the bytes that LocalRead.checkpoint() returned",
            )
        try:
            at = len(_MAGIC)
            (version,) = _NUMBER.unpack_from(data, at)
            (number,) = _NUMBER.unpack_from(data, at + 8)
            at += 16
            parts = []
            for _ in range(number):
                (size,) = _NUMBER.unpack_from(data, at)
                at += 8 + size
                parts.append(bytes(data[at - size : at]))
            if at != len(data) or number % 2 == 0:
                raise ValueError(f"{len(data)} bytes, {number} parts that end at {at}")
            ids = [part.decode() for part in parts[1::2]]
        except (struct.error, ValueError) as error:
            raise StateVersionError(
                "this checkpoint of a local read is not complete",
                have=f"{len(data)} bytes",
                remedy="pass the bytes that LocalRead.checkpoint() returned",
            ) from error
        return cls(parts[0], version, list(zip(ids, parts[2::2], strict=True)))


class LocalReaderContext(PlacedReaderContext):
    """The context of a reader that runs in the coordinator's process."""

    def __init__(
        self, coordinator: SourceCoordinator[Any, Any], subtask: int, parallelism: int
    ) -> None:
        super().__init__(subtask, parallelism)
        self._coordinator = coordinator

    def send_split_request(self) -> None:
        """Request a split from the enumerator."""
        self._coordinator.request_split(self._index, self._host)

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator."""
        check_event(event)
        self._coordinator.source_event(self._index, event)


@dataclass
class LocalGateway:
    """Passes the enumerator's messages to the readers; holds them back during a checkpoint.

    A split that is assigned after the enumerator's snapshot must not reach a reader before the
    reader's own snapshot, or both contain it. Flink closes its gateways in the same way.

    Attributes:
        wake_up: wakes the thread that polls the readers.
        operators: the operators of the readers, by their numbers.
        error: the enumerator's failure.
    """

    wake_up: Callable[[], None]
    operators: Sequence[SourceOperator[Any]] = ()
    error: HeadgateError | None = None
    _held: list[Callable[[], None]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Assign splits to a reader."""
        self._pass_on(lambda: self.operators[subtask].add_splits(version, splits))

    def no_more_splits(self, subtask: int) -> None:
        """Tell a reader that no split follows."""
        self._pass_on(self.operators[subtask].no_more_splits)

    def event(self, subtask: int, event: SourceEvent) -> None:
        """Send an event to a reader."""
        self._pass_on(lambda: self.operators[subtask].source_event(event))

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        """Send a reader the limit of its watermark."""
        self._pass_on(lambda: self.operators[subtask].align(max_allowed_ms))

    def failed(self, error: HeadgateError) -> None:
        """Store the error, which is raised in place of the next record."""
        self.error = error
        self.wake_up()

    def checkpoint(
        self, coordinator: SourceCoordinator[Any, Any], checkpoint_id: int
    ) -> Future[bytes]:
        """Request the coordinator's checkpoint; messages after its snapshot are held back."""
        asked: Future[bytes] = Future()

        def answer(data: bytes | None, error: HeadgateError | None) -> None:
            with self._lock:
                if not asked.set_running_or_notify_cancel():
                    return  # The caller was interrupted.
                self._held = []
            if data is not None:
                asked.set_result(data)
            else:
                asked.set_exception(error)

        coordinator.checkpoint(checkpoint_id, answer)
        return asked

    def pass_on_held(self, asked: Future[bytes]) -> None:
        """Pass on the held messages, even if the checkpoint has not been taken."""
        with self._lock:
            asked.cancel()
            held, self._held = self._held, None
            for message in held or ():
                message()

    def _pass_on(self, message: Callable[[], None]) -> None:
        with self._lock:
            if self._held is None:
                message()
            else:
                self._held.append(message)
