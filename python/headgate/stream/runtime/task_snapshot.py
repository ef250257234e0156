"""A task's part of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.stream.runtime.channel_state import ChannelState

if TYPE_CHECKING:
    from headgate.stream.graph.operator import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task's part of a checkpoint, whose keyed state is not written yet.

    Attributes:
        checkpoint: its id.
        savepoint: folder of a savepoint; empty for a checkpoint.
        operators: by uid.
        splits: version of the serializer, and ids and bytes of the reader's splits; None without a source.
        start_delay: ms from the trigger to the first barrier.
        sync_ms: ms for which the task stood still.
        channels: rows in flight.
    """

    checkpoint: int
    savepoint: str
    operators: dict[str, OperatorSnapshot]
    splits: tuple[int, list[tuple[str, bytes]]] | None
    start_delay: int
    sync_ms: int
    channels: ChannelState = field(default_factory=ChannelState)
