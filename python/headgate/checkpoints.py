"""Barriers of checkpoints, and what a reader tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from headgate import _native
from headgate._arguments import (
    any_text,
    arrow_schema,
    flag,
    octets,
    optional,
    takes,
    whole_number,
)
from headgate.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

Alignment: TypeAlias = Literal["aligned", "unaligned", "timeoutable", "at_least_once"]
#: Numbers that travel have 64 bits.
_LARGEST = 2**63 - 1


class CheckpointBarrier(NamedTuple):
    """Separates the records before a checkpoint from those after it.

    A reader of a gate with checkpoints gives it to ``on_event`` once per checkpoint, when the task
    must take its snapshot and send the barrier on with :meth:`RecordWriter.broadcast_barrier`. The
    channels that wait for the checkpoint are read on once ``on_event`` has returned. If it raises,
    the reader refuses to go on, as there is no snapshot.

    Attributes:
        checkpoint_id: number of the checkpoint, from 0; newer ones have larger numbers.
        timestamp: time of the trigger, in ms since 1970.
        alignment: ``"aligned"``: the barriers of all channels wait for each other. ``"unaligned"``:
            barriers overtake records, which become part of the checkpoint. ``"timeoutable"``:
            aligned until the timeout has passed, unaligned from then on. ``"at_least_once"``:
            barriers neither wait nor overtake, so records behind them may be in the snapshot.
        timeout: of ``"timeoutable"``, ms from the trigger; 1 or more.
        body: description of the snapshot, passed on with the barrier.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(1)
        ...     gate = env.create_input_gate([partition.address(0)])
        ...     gate.enable_checkpointing()
        ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...         writer.emit(b"before")
        ...         writer.broadcast_barrier(hg.CheckpointBarrier(1, 0, "aligned"))
        ...         writer.emit(b"behind")
        ...     heard = lambda event: print(type(event).__name__, event.checkpoint_id)
        ...     for record in hg.RecordReader(gate, serializer="bytes", on_event=heard):
        ...         print(record)
        b'before'
        CheckpointBarrier 1
        CheckpointComplete 1
        b'behind'
    """

    checkpoint_id: int
    timestamp: int
    alignment: Alignment
    timeout: int = 0
    body: bytes = b""


class CheckpointComplete(NamedTuple):
    """The barriers of all channels have arrived: the input's part of a checkpoint is complete.

    Attributes:
        checkpoint_id: number of the checkpoint.
        alignment_duration: ms from the first barrier to the last one.
        start_delay: ms from the trigger to the first barrier.
        bytes_in_alignment: bytes of data that were read between these.
        persisted_bytes: bytes of data in flight that belong to the checkpoint.

    Example:
        See :class:`CheckpointBarrier`.

        >>> import headgate as hg
        >>> hg.CheckpointComplete(1, 250, 20, 65_536, 0).alignment_duration
        250
    """

    checkpoint_id: int
    alignment_duration: int
    start_delay: int
    bytes_in_alignment: int
    persisted_bytes: int


class CheckpointAborted(NamedTuple):
    """A checkpoint was given up; no barrier of it is waited for any more.

    The task declines it and sends :meth:`RecordWriter.broadcast_cancellation`, whether or not it has
    heard of its barrier before.

    Attributes:
        checkpoint_id: number of the checkpoint.
        reason: for the coordinator.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(1)
        ...     gate = env.create_input_gate([partition.address(0)])
        ...     gate.enable_checkpointing()
        ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...         writer.broadcast_cancellation(1)
        ...     list(hg.RecordReader(gate, serializer="bytes", on_event=print))
        CheckpointAborted(checkpoint_id=1, reason='a task before this one declined the checkpoint')
        []
    """

    checkpoint_id: int
    reason: str


@takes(parts=octets(), schema=optional(arrow_schema))
def decode_channel_state(parts: bytes, schema: pa.Schema | None) -> list[Any]:
    """Return the records of a channel that were in flight at a checkpoint, in their order.

    A restored task processes them before all others.

    Args:
        parts: what the consumer's ``RecordReader.take_channel_state`` has of the channel, and
            behind it what the producer's ``RecordWriter.take_channel_state`` has of its
            subpartition. A record may be cut between the two, so they are decoded together.
        schema: schema of the batches; None for bytes records.

    Returns:
        A ``pyarrow.RecordBatch`` for each page, or bytes for each record.

    Raises:
        IntegrityError: the bytes are damaged, or end within a record.
        SchemaMismatchError: the pages have another schema.

    Example:
        >>> import headgate as hg
        >>> heard = []
        >>> with hg.ShuffleEnvironment() as env:
        ...     partition = env.create_result_partition(1)
        ...     gate = env.create_input_gate([partition.address(0)])
        ...     gate.enable_checkpointing()
        ...     reader = hg.RecordReader(gate, serializer="bytes", on_event=heard.append)
        ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
        ...         writer.emit(b"overtaken")
        ...         writer.broadcast_barrier(hg.CheckpointBarrier(1, 0, "unaligned"))
        ...         (output,) = writer.take_channel_state(1)
        ...     list(reader), reader.take_channel_state(1)
        ...     hg.decode_channel_state(output[1], None)
        ([b'overtaken'], [])
        [b'overtaken']
    """
    return _native.decode_channel_state(parts, schema)


def check_barrier(barrier: CheckpointBarrier) -> None:
    """Refuse a barrier that cannot be sent.

    Raises:
        OptionError: a field that no barrier can have.
    """
    alignment, timeout = barrier.alignment, barrier.timeout
    if alignment not in get_args(Alignment):
        raise OptionError(
            f"alignment={alignment!r} is unknown",
            remedy=" · ".join(f'"{choice}"' for choice in get_args(Alignment)),
        )
    lowest = 1 if alignment == "timeoutable" else 0
    # The largest number stands for a checkpoint that never times out.
    highest = _LARGEST - 1 if alignment == "timeoutable" else 0
    if not lowest <= timeout <= highest:
        raise OptionError(
            f"timeout={timeout} of a barrier that is {alignment}",
            remedy="1 ms or more for a timeoutable one, 0 for others",
        )
    checked_id(barrier.checkpoint_id)


def checked_id(checkpoint_id: int) -> int:
    """Return the number of a checkpoint, for the native module.

    Raises:
        OptionError: it is negative, or has more than 63 bits.
    """
    return whole_number("checkpoint_id", checkpoint_id, 0, _LARGEST)


#: The progress of checkpoints, as a reader gives it to ``on_event``.
NOTICES: Final = (CheckpointBarrier, CheckpointComplete, CheckpointAborted)


class Checkpointed:
    """Checkpoints, for :class:`headgate.InputGate` and unions of gates."""

    _native: Any

    @takes(after_finish=flag)
    def enable_checkpointing(self, *, after_finish: bool = True) -> None:
        """Have the reader handle the barriers of checkpoints.

        From now on ``on_event`` of :class:`RecordReader` gets :class:`CheckpointBarrier`,
        :class:`CheckpointComplete` and :class:`CheckpointAborted`. The reader blocks and resumes
        channels by itself. The alignment of the first barrier says how: those ``"at_least_once"`` are only
        counted, so records behind some may be in the snapshot, and come again after a recovery. The reader
        raises at a barrier of the other kind. Source: Flink's ``CheckpointedInputGate``.

        Args:
            after_finish: count a channel that ends as one whose barrier has arrived. If False, its
                end aborts the checkpoint.

        Raises:
            ClosedError: a channel can still be added, the gate was read before, or it was called
                before. The gates of a union take no checkpoints of their own.
        """
        self._native.enable_checkpointing(after_finish)

    @takes(reason=any_text)
    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """Give up a checkpoint, as its coordinator did; any thread may call it.

        The reader's next call resumes the channels that wait, and gives ``on_event`` a
        :class:`CheckpointAborted`. A reader that waits is woken. A checkpoint that has not begun here
        never will; one that is complete stays so. Source: Flink's ``notifyCheckpointAborted``.

        Raises:
            ClosedError: :meth:`enable_checkpointing` was not called.
            OptionError: no number of a checkpoint.
        """
        self._native.abort_checkpoint(checked_id(checkpoint_id), reason)
