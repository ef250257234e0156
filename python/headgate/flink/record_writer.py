"""Methods of Flink's record writer that no exchange of rows needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate._native import RecordWriter as NativeWriter


class FlinkRecordWriter(ABC):
    """Random subpartitions and supersteps, for :class:`headgate.RecordWriter`."""

    _native: NativeWriter

    @abstractmethod
    def _prepared(self, record: Any) -> Iterable[Any]:
        """Yield the record in the parts that the native writer takes."""

    def random_emit(self, record: Any) -> None:
        """Emit a record to one subpartition at random, whatever the selector.

        For records without a key, such as latency markers. A batch goes to one subpartition as a
        whole. Source: Flink's ``RecordWriter.randomEmit``.
        """
        for part in self._prepared(record):
            self._native.random_emit(part)

    def end_of_superstep(self) -> None:
        """Append the end of a superstep to every subpartition, after all records so far.

        Readers must be iterative: see :class:`headgate.RecordReader`.
        """
        self._native.end_of_superstep()
