"""Methods of Flink's record readers that no exchange of rows needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate._native import RecordReader as NativeReader


class FlinkRecordReader:
    """Supersteps, for :class:`headgate.RecordReader` and :class:`headgate.MutableRecordReader`."""

    _native: NativeReader

    @property
    def has_reached_end_of_superstep(self) -> bool:
        """True once every open channel has reached the end of the superstep.

        Always False for a reader that is not iterative, and while channels can still be added.
        """
        return self._native.has_reached_end_of_superstep()

    def start_next_superstep(self) -> None:
        """Continue with the records of the next superstep.

        Raises:
            ClosedError: a channel has not reached the end of this superstep.
        """
        self._native.start_next_superstep()
