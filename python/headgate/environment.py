"""The data plane of a process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from headgate import _native, _options
from headgate._directories import local_directories
from headgate._matches import close_matches
from headgate._option_table import DEBLOAT_OPTIONS, OPTIONS
from headgate.errors import OptionError
from headgate.gate import InputGate
from headgate.partition import KINDS, Compression, PartitionKind, ResultPartition, TaskEvent

#: Whether processes of one host share memory.
SameHostLink = Literal["auto", "off"]

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.address import ChannelAddress


class ShuffleEnvironment:
    """Pool, partitions, gates, connections and threads: one per process and exchange.

    Nothing is started or allocated before it is needed. A forked child must make its own; the
    parent's raises :class:`~headgate.errors.ForkError` there and is otherwise left alone.

    Args:
        memory: budget of all exchange data of this process, ``"64m"`` or a number of bytes.
        segment_size: size of a segment, the unit of memory, of a page and of credit.
        listen: ``"HOST:PORT"`` that other processes connect to; listening starts with the first
            :attr:`address` or :meth:`ResultPartition.address`.
        secret: 32 bytes that all processes of the exchange share; random if not given, and then
            only this process can read its partitions.
        exchange_id: 16 bytes that name the exchange.
        run: which evaluation of the exchange this is.
        epoch: which attempt at that evaluation.
        max_record_size: largest row, bytes record or object, in bytes.
        buffers_per_channel: segments of a channel from another process, and of a subpartition
            beside the one being written.
        floating_buffers_per_gate: segments of a gate or partition that go where they are wanted.
        max_buffers_per_channel: segments that one subpartition may have queued before the writer
            waits ahead of its next record.
        max_overdraft_buffers: segments a partition may take beyond its part to complete a record.
        buffer_timeout: how long what a writer emitted may wait for its page or buffer to fill, as
            ``"100ms"`` or seconds; 0 sends after each record, -1 never by time. The thread that
            does it starts with the first writer that needs it.
        buffer_debloat_enabled: whether buffers get as small as slow readers need them, so that what
            waits for one is read within `buffer_debloat_target`.
        buffer_debloat_target: that time, ``"1s"`` or seconds.
        buffer_debloat_period: how often a reader looks at its speed.
        buffer_debloat_samples: over how many such periods the size is smoothed.
        buffer_debloat_threshold_percentages: by how much a size must differ to be announced.
        min_segment_size: the least that is asked for, in bytes.
        starting_segment_size: what is asked for at first, in bytes; a segment if not given.
        spill_threshold: larger records than this that span segments are put together in temporary
            files, in bytes.
        temp_directories: where those are made, one path or several; by default Spark's local
            directories where this process runs for Spark, else the system's.
        compression: how full buffers of its partitions are compressed on their way to disk or to
            another process: ``"none"``, ``"lz4"`` or ``"zstd"``.
        max_spill_size: the most that a blocking or hybrid partition may have on disk, in bytes; 0
            is no limit.
        partition_request_timeout: how long a consumer's request waits for a partition of this
            process that does not exist yet, ``"10s"`` or seconds; 0 refuses it at once.
        idle_timeout: silence after which a process that channels are open to is taken for lost.
        same_host_link: ``"auto"`` or ``"off"``: whether processes of one host share memory instead of
            sending pages over TCP.

    Raises:
        OptionError: a value outside its limits.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment(memory="8m", segment_size="64k") as env:
        ...     segments = env.stats()["segments"]
        ...     segments["total"], segments["held"]
        (128, 0)
    """

    def __init__(
        self,
        *,
        memory: str | int | None = None,
        segment_size: str | int | None = None,
        listen: str | None = None,
        secret: bytes | None = None,
        exchange_id: bytes | None = None,
        run: int = 0,
        epoch: int = 0,
        max_record_size: str | int | None = None,
        buffers_per_channel: int | None = None,
        floating_buffers_per_gate: int | None = None,
        max_buffers_per_channel: int | None = None,
        max_overdraft_buffers: int | None = None,
        buffer_timeout: str | float | None = None,
        buffer_debloat_enabled: bool | None = None,
        buffer_debloat_target: str | float | None = None,
        buffer_debloat_period: str | float | None = None,
        buffer_debloat_samples: int | None = None,
        buffer_debloat_threshold_percentages: int | None = None,
        min_segment_size: str | int | None = None,
        starting_segment_size: str | int | None = None,
        spill_threshold: str | int | None = None,
        temp_directories: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        compression: Compression | None = None,
        max_spill_size: str | int | None = None,
        partition_request_timeout: str | float | None = None,
        idle_timeout: str | float | None = None,
        same_host_link: SameHostLink | None = None,
    ) -> None:
        options = _options.resolve(
            "environment",
            {
                "memory": memory,
                "segment_size": segment_size,
                "listen": listen,
                "max_record_size": max_record_size,
                "buffers_per_channel": buffers_per_channel,
                "floating_buffers_per_gate": floating_buffers_per_gate,
                "max_buffers_per_channel": max_buffers_per_channel,
                "max_overdraft_buffers": max_overdraft_buffers,
                "buffer_timeout": buffer_timeout,
                "buffer_debloat_enabled": buffer_debloat_enabled,
                "buffer_debloat_target": buffer_debloat_target,
                "buffer_debloat_period": buffer_debloat_period,
                "buffer_debloat_samples": buffer_debloat_samples,
                "buffer_debloat_threshold_percentages": buffer_debloat_threshold_percentages,
                "min_segment_size": min_segment_size,
                "starting_segment_size": starting_segment_size,
                "spill_threshold": spill_threshold,
                "temp_directories": temp_directories,
                "compression": compression,
                "max_spill_size": max_spill_size,
                "partition_request_timeout": partition_request_timeout,
                "idle_timeout": idle_timeout,
                "same_host_link": same_host_link,
            },
        )
        native = dict(options)
        #: Seconds, of the writers that do not say otherwise; 0 and -1 as in the option.
        self._buffer_timeout: float = native.pop("buffer_timeout")
        debloat = {
            name.removeprefix("buffer_debloat_"): native.pop(name) for name in DEBLOAT_OPTIONS
        }
        if debloat["starting_segment_size"] is None:
            debloat["starting_segment_size"] = options["segment_size"]
        native["buffer_debloat"] = debloat if debloat["enabled"] else None
        native["temp_directories"] = options["temp_directories"] or local_directories()
        self._max_spill_size: int = native.pop("max_spill_size")
        self._compression: str = native.pop("compression")
        self._native = _native.Environment(
            **native,
            secret=_exactly(
                "secret", secret if secret is not None else secrets.token_bytes(32), 32
            ),
            exchange=_exactly("exchange_id", bytes(16) if exchange_id is None else exchange_id, 16),
            run=_counter("run", run),
            epoch=_counter("epoch", epoch),
        )

    @property
    def process_id(self) -> bytes:
        """16 random bytes that name this process within the exchange."""
        return self._native.process_id

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that other processes connect to; listens from the first use on.

        Raises:
            ConnectError: the address cannot be listened on.
        """
        return self._native.address()

    def create_result_partition(
        self,
        num_subpartitions: int,
        *,
        kind: PartitionKind = "pipelined_bounded",
        schema: pa.Schema | None = None,
        wanted: Iterable[int] | None = None,
        lost_consumer_timeout: float = 0.0,
        compression: Compression | None = None,
        max_spill_size: str | int | None = None,
        partition_id: bytes | None = None,
        on_task_event: Mapping[str, Callable[[TaskEvent], object]] | None = None,
    ) -> ResultPartition:
        """Create the output of one producer.

        Args:
            num_subpartitions: how many consumers the rows are cut for.
            kind: when it is read, and where its data waits.

                * ``"pipelined_bounded"``: read while it is written, once. The writer waits when the
                  partition's share of the segments is used up.
                * ``"pipelined"``: the same, with all segments that nobody else needs.
                * ``"blocking"``: written to disk; read after the writer has finished, any number of
                  times and by several readers at once, until it is closed. Who comes earlier gets a
                  :class:`~headgate.errors.PartitionNotFoundError`.
                * ``"hybrid"``: read while it is written, once. What finds no free segment goes to
                  disk, so the writer never waits for a slow reader, or one that is not there yet.
            schema: what will be written, if it is to travel in the addresses.
            wanted: numbers of the subpartitions that have a consumer; rows for the others are
                dropped. All of them if not given.
            lost_consumer_timeout: seconds that somebody has, once a consumer vanished before it had
                everything, to call :meth:`ResultPartition.release_subpartition` or :meth:`abort`;
                then the partition fails. 0 fails it at once, ``math.inf`` never. A blocking one
                does not fail: another consumer may come.
            compression: how full buffers are compressed, ``"none"``, ``"lz4"`` or ``"zstd"``; as
                the environment says if not given. Blocking and hybrid partitions compress
                everything, pipelined ones what is for consumers in other processes or not read
                yet. Each buffer is compressed by itself, and kept so only if that makes it smaller.
            max_spill_size: the most that it may have on disk, in bytes, 0 for no limit; the
                environment's if not given. There a hybrid partition's writer waits for the reader;
                a blocking partition, which has no reader yet, fails.
            partition_id: 16 bytes that no other partition ever has; random if not given. Who knows
                them may ask for the partition before it exists.
            on_task_event: handlers of task events by name, there before any consumer is; see
                :meth:`ResultPartition.on_task_event`.

        Raises:
            OptionError: fewer than one subpartition, an unknown kind, codec or number, a timeout
                that is no number of seconds.
            ClosedError: a partition of this id exists, or existed.
            PoolTooSmallError: not one segment for each wanted subpartition and one more; for blocking
                and hybrid ones another one, to read with.

        Example:
            >>> import headgate as hg
            >>> with hg.ShuffleEnvironment() as env:
            ...     partition = env.create_result_partition(1, kind="blocking")
            ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
            ...         writer.emit(b"kept on disk")
            ...     for _ in range(2):
            ...         gate = env.create_input_gate([partition.address(0)])
            ...         print(list(hg.RecordReader(gate, serializer="bytes")))
            [b'kept on disk']
            [b'kept on disk']
        """
        if num_subpartitions < 1:
            raise OptionError(f"num_subpartitions={num_subpartitions} is less than 1")
        if kind not in KINDS:
            near = close_matches(str(kind), KINDS) or KINDS
            raise OptionError(
                f"kind={kind!r} is no kind of partition",
                asked=f"kind={kind!r}",
                have=", ".join(KINDS),
                remedy=" · ".join(f'kind="{one}"' for one in near),
            )
        limit = self._max_spill_size
        if max_spill_size is not None:
            limit = _options.parse(OPTIONS["max_spill_size"], max_spill_size)
        codec = self._compression
        if compression is not None:
            codec = _options.parse(OPTIONS["compression"], compression)
        if not lost_consumer_timeout >= 0:
            raise OptionError(f"lost_consumer_timeout={lost_consumer_timeout} is less than 0")
        built = [wanted is None] * num_subpartitions
        for index in wanted or ():
            if not 0 <= index < num_subpartitions:
                raise OptionError(f"wanted={index} is not one of {num_subpartitions} subpartitions")
            built[index] = True
        if partition_id is not None:
            partition_id = _exactly("partition_id", partition_id, 16)
        handlers = dict(on_task_event or {})
        native = self._native.create_result_partition(
            built, lost_consumer_timeout, kind, codec, limit, partition_id, list(handlers)
        )
        return ResultPartition(self, native, schema, kind, handlers)

    def create_input_gate(
        self,
        addresses: Iterable[ChannelAddress] = (),
        *,
        unknown: int = 0,
        sealed: bool = True,
        schema: pa.Schema | None = None,
    ) -> InputGate:
        """Create the input of one consumer.

        Args:
            addresses: one per producer; a channel within this process needs no connection.
            unknown: how many more channels there are whose producers are not known yet, numbered
                behind the others: see :meth:`InputGate.update_channel`.
            sealed: False when channels will still be added, until :meth:`InputGate.seal`.
            schema: the schema of the batches, checked against each producer's.

        Raises:
            PoolTooSmallError: not one segment for each channel from another process.
            PartitionNotFoundError: an address of this process whose partition was released. One
                that does not exist yet is waited for, as at other processes.
            OptionError: ``unknown`` is less than 0.
        """
        if unknown < 0:
            raise OptionError(f"unknown={unknown} is less than 0")
        gate = InputGate(self._native.create_input_gate(), schema)
        try:
            for address in addresses:
                gate.add_channel(address)
            for _ in range(unknown):
                gate.add_unknown_channel()
        except BaseException:
            gate.close()
            raise
        if sealed:
            gate.seal()
        return gate

    def stats(self) -> dict[str, Any]:
        """Return a plain snapshot.

        Keys: ``segments`` (size in bytes; total, idle, held, reserved, pinned, peak in segments;
        requested_percent: what all pools would like to have, from 100 on they share too little),
        ``peak_bytes``, ``bytes_sent``, ``bytes_received`` (through sockets), ``connections`` (open ones, by
        link: ``tcp``, ``same_host``), ``lent`` (what processes of this host read in its segments:
        buffers ``now``, and all ``buffers`` and ``bytes`` so far), ``copies`` (bytes by reason: ``scatter``, rows gathered
        into pages; ``compacted``, those of slices that would have kept much more memory than they have;
        ``joined``, buffers that came in pieces and are read in one; ``coalesced`` small pages; ``pool_low``,
        batches that are kept; ``spanning`` and ``spilled`` large records; ``unmapped`` lent pages),
        ``compression`` (bytes_in of buffers that were to be compressed, bytes_out afterwards),
        ``spilled`` (bytes_written, bytes_read and the files that are open now),
        ``partitions`` and ``gates`` (a list each, with one dict per subpartition or channel),
        ``metrics`` (Flink's, by Flink's names: see docs/metrics.md).

        Example:
            >>> import headgate as hg
            >>> with hg.ShuffleEnvironment() as env:
            ...     partition = env.create_result_partition(4)
            ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
            ...         writer.broadcast_emit(b"to all of them")
            ...     metrics = env.stats()["metrics"]
            ...     metrics["task"]["numBuffersOut"], metrics["partitions"][0]["outputQueueLength"]
            (4, 8)
        """
        return self._native.stats()

    def abort(self, cause: BaseException | str) -> None:
        """End every reader and writer of this environment with this cause."""
        self._native.abort(str(cause))

    def close(self) -> None:
        """Give back gates, partitions, connections, thread and memory; may be called twice.

        Batches that were read stay valid. In a forked child it does nothing.
        """
        self._native.close()

    def __enter__(self) -> Self:
        """Return the environment itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def _exactly(name: str, value: bytes, length: int) -> bytes:
    if len(value) != length:
        # Never the value itself: it may be a secret.
        raise OptionError(f"{name} has {len(value)} bytes, it needs {length}")
    return bytes(value)


def _counter(name: str, value: int) -> int:
    if not 0 <= value < 2**32:
        raise OptionError(f"{name}={value} is outside its limits", have="0 to 4294967295")
    return value
