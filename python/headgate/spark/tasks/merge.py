"""Runs several iterators of batches at once and yields their batches as they come."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

#: Batches in the queue, per iterator.
DEPTH: Final = 2


def merge(
    sources: list[Iterator[pa.RecordBatch]], stop: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all sources; the first error ends all of them.

    Args:
        sources: each runs in a thread of its own; a single one in the caller's.
        stop: makes every source raise or end soon; called if this ends first.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    pumps = _Pumps(sources)
    try:
        yield from pumps.made()
    finally:
        pumps.end(stop)


class _Pumps:
    def __init__(self, sources: list[Iterator[pa.RecordBatch]]) -> None:
        self._made: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(
            DEPTH * len(sources)
        )
        self._left = len(sources)
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._pump, args=(s,), name="headgate-reduce", daemon=True)
            for s in sources
        ]
        for thread in self._threads:
            thread.start()

    def made(self) -> Iterator[pa.RecordBatch]:
        while self._left:
            item = self._made.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                self._left -= 1
            else:
                yield item

    def end(self, stop: Callable[[], None]) -> None:
        self._stopped.set()
        if self._left:
            stop()
        for thread in self._threads:
            thread.join(1.0)

    def _pump(self, source: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in source:
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            self._put(error)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._made.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
