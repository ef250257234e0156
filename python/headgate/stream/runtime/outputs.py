"""The outputs of a task: rows, watermarks and idleness for the tasks of other stages."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headgate.selectors import (
    BroadcastSelector,
    KeyedStateSelector,
    LeastLoadedSelector,
    NativeSelector,
    RoundRobinSelector,
)
from headgate.stream.graph.limits import UNLIMITED, BatchLimits
from headgate.stream.graph.nodes import Shipping
from headgate.writer import RecordWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.partition import ResultPartition
    from headgate.stream.graph.stages import OutputEdge

#: Names of the events that the tasks send each other.
WATERMARK: Final = "watermark"
IDLE: Final = "idle"
_MS: Final = struct.Struct(">q")


def watermark_of(body: bytes) -> int:
    """Return the watermark of an event, in ms."""
    (watermark,) = _MS.unpack(body)
    return int(watermark)


class TaskOutput:
    """One edge to another stage: a result partition and its writer.

    Args:
        edge: what is sent, and how.
        partition: with a subpartition for each task of the other stage.
        max_parallelism: number of key groups.
        limits: of the batches that the other stage takes; its pages have no more, so that few rows are before a barrier.
    """

    def __init__(
        self,
        edge: OutputEdge,
        partition: ResultPartition,
        max_parallelism: int,
        limits: BatchLimits = UNLIMITED,
    ) -> None:
        self.edge = edge
        self._limits = limits
        self.partition = partition
        tasks = partition.num_subpartitions
        selector: NativeSelector = RoundRobinSelector()
        if edge.shipping is Shipping.BROADCAST:
            selector = BroadcastSelector()
        elif edge.shipping is Shipping.HASH and tasks > 1:
            selector = KeyedStateSelector(edge.keys, max_parallelism)
        elif edge.shipping is Shipping.LOAD:
            selector = LeastLoadedSelector()
        self.writer = RecordWriter(partition, edge.schema, selector=selector)

    def emit(self, batch: pa.RecordBatch) -> None:
        """Send rows; waits while the other stage is behind."""
        if self._limits == UNLIMITED:
            self.writer.emit(batch)
            return
        for part in self._limits.parts(batch):
            self.writer.emit(part)
            self.writer.flush()

    def emit_watermark(self, watermark: int) -> None:
        """Send a watermark behind all rows so far."""
        self.writer.broadcast_event(WATERMARK, _MS.pack(watermark))

    def emit_idle(self) -> None:
        """Tell the other stage not to wait for this task's watermark."""
        self.writer.broadcast_event(IDLE)
