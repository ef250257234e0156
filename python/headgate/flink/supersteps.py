"""Supersteps: rounds of an iteration, which end on all channels before the next one is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from headgate._arguments import function, instance, takes
from headgate.errors import ClosedError
from headgate.reader import Event, RecordReader
from headgate.writer import RecordWriter

if TYPE_CHECKING:
    from headgate.flink.union import UnionInputGate
    from headgate.gate import InputGate

#: Name of the event behind which a channel waits for the next superstep.
END_OF_SUPERSTEP: Final = "headgate.flink.end_of_superstep"
_NOTHING: Final = object()


@takes(writer=instance("a RecordWriter", RecordWriter))
def end_of_superstep(writer: RecordWriter) -> None:
    """End a superstep on every subpartition, after all records so far.

    Each subpartition waits behind it until its reader, a :class:`SuperstepReader`, starts the next one.

    Raises:
        ClosedError: a blocking or hybrid partition, or after ``finish``.
    """
    writer.broadcast_event(END_OF_SUPERSTEP, is_barrier=True)


class SuperstepReader:
    """Reads a gate one superstep at a time: iterating ends with the superstep.

    >>> import headgate as hg
    >>> from headgate.flink import SuperstepReader, end_of_superstep
    >>> env = hg.ShuffleEnvironment(memory="1m", segment_size="32k")
    >>> partition = env.create_result_partition(1)
    >>> reader = SuperstepReader(env.create_input_gate([partition.address(0)]), serializer="bytes")
    >>> with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...     writer.emit(b"one")
    ...     end_of_superstep(writer)
    ...     writer.emit(b"two")
    >>> list(reader), reader.has_reached_end_of_superstep
    ([b'one'], True)
    >>> reader.start_next_superstep()
    >>> list(reader), reader.is_finished
    ([b'two'], True)
    >>> env.close()

    Args:
        gate: a sealed :class:`~headgate.InputGate`, or a :class:`UnionInputGate`, without another reader.
        on_event: as in :class:`~headgate.RecordReader`; it does not get the ends of supersteps.
        options: the other options of :class:`~headgate.RecordReader`.

    Raises:
        ClosedError: channels can be added to the gate.
    """

    def __init__(
        self,
        gate: InputGate | UnionInputGate,
        *,
        on_event: Callable[[Any], object] | None = None,
        **options: Any,
    ) -> None:
        if on_event is not None:
            function("on_event", on_event, 1, "def heard(event): ...")
        self._gate = gate
        self._on_event = on_event
        #: Channels that wait for the next superstep.
        self._waiting: set[int] = set()
        self._num_ended()
        self._reader = RecordReader(gate, on_event=self._handle, **options)

    def __iter__(self) -> Iterator[Any]:
        """Return the reader itself."""
        return self

    def __next__(self) -> Any:
        """Return the next record of this superstep; blocks until there is one.

        Raises:
            StopIteration: all channels have ended, or reached the end of the superstep.
            PeerLostError: the connection to a producer was lost; and the other errors of
                :class:`~headgate.RecordReader`.
        """
        while (record := self._reader.poll_next(_NOTHING)) is _NOTHING:
            if self.is_finished or self.has_reached_end_of_superstep:
                raise StopIteration
            self._reader.wait_available()
        return record

    def poll_next(self, default: Any = None) -> Any:
        """Return the next record, or `default` if there is none yet or the superstep has ended; never blocks."""
        return self._reader.poll_next(default)

    @property
    def is_finished(self) -> bool:
        """True once everything was read: all channels have ended."""
        return self._reader.is_finished

    @property
    def has_reached_end_of_superstep(self) -> bool:
        """True once every open channel has reached the end of the superstep, at least one of them."""
        waiting = len(self._waiting)
        return waiting > 0 and waiting + self._num_ended() == self._gate.num_channels

    def start_next_superstep(self) -> None:
        """Continue with the records of the next superstep.

        Raises:
            ClosedError: a channel has not reached the end of this superstep.
        """
        if not self.has_reached_end_of_superstep:
            raise ClosedError(
                "a channel has not reached the end of the superstep",
                remedy="read on until has_reached_end_of_superstep is True",
            )
        while self._waiting:
            self._gate.resume_consumption(self._waiting.pop())

    def close(self) -> None:
        """Close the gate, so that the producers stop sending. A union's gates stay open."""
        self._reader.close()

    def _num_ended(self) -> int:
        return self._gate._native.num_ended_channels()  # noqa: SLF001 - one package

    def _handle(self, event: Any) -> None:
        if isinstance(event, Event) and event.name == END_OF_SUPERSTEP:
            self._waiting.add(event.channel)
        elif self._on_event is not None:
            self._on_event(event)
