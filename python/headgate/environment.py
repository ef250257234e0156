"""The data plane of a process."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from headgate import _native, _options
from headgate._arguments import (
    arrow_schema,
    flag,
    function,
    instance,
    octets,
    one_of,
    refuse,
    takes,
    text,
    timeout,
    whole,
    whole_number,
)
from headgate._closing import Closing
from headgate._directories import local_directories
from headgate._kinds import kind_of
from headgate._option_table import OPTIONS
from headgate.errors import CertificatesRefused, OptionError
from headgate.gate import InputGate
from headgate.partition import KINDS, PartitionKind, ResultPartition, TaskEvent

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.address import ChannelAddress
    from headgate.options import Compression, EnvironmentOptions

#: Most subpartitions of a partition, and most channels of a gate.
_MOST: Final = 1 << 20
_LOG: Final = logging.getLogger("headgate.environment")


class Waits(NamedTuple):
    """Times in ns that an environment has waited for files, memory and the network so far.

    The last two are up to half a second old.

    Attributes:
        disk_ns: ns in which threads slept while they wrote a file of pages or read a kept one.
        memory_ns: ns in which writers waited for a segment of their pool while each subpartition had its
            reader in another process, and no connection had pages that it could not send.
        link_ns: ns in which the network limited a TCP connection that had more to send, for the one where it
            was longest: neither the receiver nor the send buffer was full. 0 before Linux 4.10.
        io_ns: processor time of the I/O thread in ns.
    """

    disk_ns: int
    memory_ns: int
    link_ns: int
    io_ns: int


class ShuffleEnvironment(Closing):
    """Pool, partitions, gates, connections and threads: one per process and exchange.

    Nothing is started or allocated before it is needed. A forked child must make its own: the
    parent's raises :class:`~headgate.errors.ForkError` in the child. Batches that the parent kept
    at an ``os.fork`` stay readable in the child, whatever the parent does next.

    Args:
        secret: 32 bytes that all processes of the exchange share. Random if not given: then only
            this process can read its partitions.
        exchange_id: 16 bytes that name the exchange.
        run: number of this evaluation of the exchange.
        epoch: number of this attempt at the evaluation.
        options: the options of :class:`headgate.options.EnvironmentOptions`, such as ``memory``,
            ``segment_size``, ``listen``, ``buffer_timeout`` and ``compression``. docs/options.md
            has all of them with defaults and limits.

    Raises:
        OptionError: an unknown option, or a value outside its limits.

    Example:
        >>> import headgate as hg
        >>> with hg.ShuffleEnvironment(memory="8m", segment_size="64k") as env:
        ...     segments = env.stats()["segments"]
        ...     segments["total"], segments["held"]
        (128, 0)
    """

    @takes(
        secret=octets(32),
        exchange_id=octets(16),
        run=whole(0, 2**32 - 1),
        epoch=whole(0, 2**32 - 1),
    )
    def __init__(
        self,
        *,
        secret: bytes | None = None,
        exchange_id: bytes | None = None,
        run: int = 0,
        epoch: int = 0,
        **options: Unpack[EnvironmentOptions],
    ) -> None:
        self._options = _options.resolve("environment", options)
        directories = self._options["temp_directories"]
        if directories and not any(Path(path).exists() for path in directories):
            raise OptionError(
                f"temp_directories={directories!r} does not exist",
                asked=f"temp_directories={directories!r} ({self._options.sources['temp_directories']})",
                remedy="make the directory · give one that exists · omit temp_directories",
                details={"option": "temp_directories", "value": directories},
            )
        self._native = _native.Environment(
            {**self._options, "temp_directories": directories or local_directories()},
            secret=secrets.token_bytes(32) if secret is None else bytes(secret),
            exchange=bytes(16) if exchange_id is None else bytes(exchange_id),
            run=run,
            epoch=epoch,
        )

    @property
    def process_id(self) -> bytes:
        """16 random bytes that name this process within the exchange."""
        return self._native.process_id

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that other processes connect to. Listening starts with the first use.

        Raises:
            ConnectError: the address cannot be listened on.
        """
        return self._native.address()

    @takes(
        num_subpartitions=whole(1, _MOST),
        kind=one_of(*KINDS),
        schema=arrow_schema,
        lost_consumer_timeout=timeout,
        partition_id=octets(16),
        on_task_event=instance("a dict of functions by name", dict),
    )
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
            num_subpartitions: number of consumers.
            kind: when the partition can be read, and where its data waits.

                * ``"pipelined_bounded"``: read once, while it is written. The writer blocks once
                  the partition's share of the segments is in use.
                * ``"pipelined"``: the same, with every segment that no other pool needs.
                * ``"blocking"``: written to disk. Read after the writer has finished, any number of
                  times and by several readers at once, until it is closed. A reader that comes
                  earlier gets a :class:`~headgate.errors.PartitionNotFoundError`.
                * ``"hybrid"``: read once, while it is written. Data that finds no free segment goes
                  to disk, so the writer never waits for a slow or missing reader.
            schema: schema of the batches, if addresses should carry it.
            wanted: numbers of the subpartitions that have a consumer; all if not given. Rows for
                other subpartitions are dropped.
            lost_consumer_timeout: seconds between the loss of a consumer and the failure of the
                partition; :meth:`ResultPartition.release_subpartition` and :meth:`abort` prevent
                the failure. 0 fails at once, ``math.inf`` never. A blocking partition does not
                fail, because another consumer may come.
            compression: codec of full buffers, ``"none"``, ``"lz4"`` or ``"zstd"``; the
                environment's if not given. Blocking and hybrid partitions compress all buffers.
                Pipelined ones compress buffers for other processes and buffers that wait. A buffer
                stays as it is if compression does not make it smaller.
            max_spill_size: limit of bytes on disk, 0 for no limit; the environment's if not given.
                At the limit the writer of a hybrid partition waits for the reader, and a blocking
                partition, which has no reader yet, fails.
            partition_id: 16 bytes that no other partition has; random if not given. A consumer that
                knows them may request the partition before it exists.
            on_task_event: handlers of task events by name, registered before any consumer connects;
                see :meth:`ResultPartition.on_task_event`.

        Raises:
            OptionError: fewer than one subpartition, an unknown kind, codec or subpartition, or a
                negative timeout.
            ClosedError: a partition with this id exists or existed.
            PoolTooSmallError: the pool cannot promise one segment per wanted subpartition and one
                more; blocking and hybrid partitions need another one to read with.

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
        has_consumer = [wanted is None] * num_subpartitions
        if wanted is not None and (isinstance(wanted, bytes) or not isinstance(wanted, Iterable)):
            raise refuse("wanted", wanted, f"is {kind_of(wanted)}", "numbers of subpartitions")
        for index in () if wanted is None else wanted:
            has_consumer[whole_number("wanted", index, 0, num_subpartitions - 1)] = True
        for name, handler in (on_task_event or {}).items():
            text("on_task_event", name, "names of events")
            function("on_task_event", handler, 1, "def stop(event): ...")
        handlers = dict(on_task_event or {})
        native = self._native.create_result_partition(
            has_consumer,
            lost_consumer_timeout,
            kind,
            self._or_own("compression", compression),
            self._or_own("max_spill_size", max_spill_size),
            partition_id,
            list(handlers),
        )
        self._warn_of_certificates()
        timeout = self._options["buffer_timeout"]
        return ResultPartition(native, self._native, schema, kind, handlers, timeout)

    def _warn_of_certificates(self) -> None:
        """Log that changed files of certificates cannot be used, once for each of their states."""
        if refusal := self._native.take_tls_refusal():
            summary = f"{refusal}; connections go on with the files that were read before"
            _LOG.warning("%s", CertificatesRefused(summary))

    def _or_own(self, name: str, value: Any) -> Any:
        """Return the value of an option for one partition, or the environment's if it is None."""
        return self._options[name] if value is None else _options.parse(OPTIONS[name], value)

    @takes(unknown=whole(0, _MOST), sealed=flag, schema=arrow_schema)
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
            addresses: one per producer. A channel within this process needs no connection.
            unknown: number of further channels whose producers are not known yet. They are numbered
                after the others; see :meth:`InputGate.update_channel`.
            sealed: False if channels will still be added, until :meth:`InputGate.seal`.
            schema: schema of the batches, checked against the schema of each producer.

        Raises:
            PoolTooSmallError: the pool cannot promise one segment to each channel from another
                process.
            PartitionNotFoundError: an address of this process whose partition was released. A
                partition that does not exist yet is waited for, as at other processes.
            OptionError: ``unknown`` is less than 0.
        """
        if not isinstance(addresses, Iterable):
            raise refuse("addresses", addresses, f"is {kind_of(addresses)}", "ChannelAddresses")
        gate = InputGate(self._native.create_input_gate(), schema)
        self._warn_of_certificates()
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

    @takes(partition_id=octets(16), indexes=instance("a path", str, os.PathLike))
    def serve(self, partition_id: bytes, indexes: str | os.PathLike[str]) -> None:
        """Serve a kept partition to gates of other processes, also on other hosts.

        Its files need not exist yet, and nothing of them is read before a consumer asks. Gates reach
        the subpartitions by a :class:`ChannelAddress` with :meth:`address`, :attr:`process_id` and
        ``partition_id``. A subpartition can be read several times.

        Args:
            partition_id: 16 bytes that name the partition from now on.
            indexes: the file that ``headgate.kept.write_indexes`` returned, in this process or
                another one of this host.

        Raises:
            InternalError: the environment has or had a partition of this name.
        """
        self._native.serve(partition_id, os.fspath(indexes))
        self._warn_of_certificates()

    @takes(partition_id=octets(16))
    def withdraw(self, partition_id: bytes) -> bool:
        """Serve a kept partition no more; gates that read it go on. Return False if it was not served."""
        return self._native.withdraw(partition_id)

    def stats(self) -> dict[str, Any]:
        """Return a plain snapshot.

        Keys:

        * ``segments``: ``size`` in bytes; ``total``, ``idle``, ``held``, ``reserved``, ``pinned``
          and ``peak`` in segments; ``requested_percent``, the demand of all pools in percent of
          the total. From 100 on the pools compete for segments.
        * ``peak_bytes``: the peak in bytes.
        * ``bytes_sent``, ``bytes_received``: bytes that went through sockets.
        * ``connections``: open connections by link, ``tcp`` and ``same_host``.
        * ``lent``: buffers that processes of this host read in this process's segments, ``now``,
          and the ``buffers`` and ``bytes`` lent so far.
        * ``copies``: copied bytes by reason. ``scatter``: rows gathered into pages. ``compacted``:
          slices of much larger batches, copied so that the batch can be freed. ``joined``: buffers
          in pieces that are read as one. ``coalesced``: small pages put together. ``pool_low``:
          pages copied out of segments while free segments are few. ``spanning``, ``spilled``:
          records larger than a segment. ``unmapped``: lent pages that could not be mapped.
        * ``compression``: ``bytes_in`` before compression and ``bytes_out`` after it.
        * ``spilled``: ``bytes_written``, ``bytes_read`` and the ``files`` open now.
        * ``partitions``, ``gates``: a list each, with one dict per subpartition or channel.
        * ``metrics``: Flink's metrics by Flink's names; see docs/metrics.md.

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
        self._warn_of_certificates()
        return self._native.stats()

    def waits(self) -> Waits:
        """Return what this environment has waited for so far. It costs less than :meth:`stats`."""
        return Waits(*self._native.waits())

    def abort(self, cause: BaseException | str) -> None:
        """End every reader and writer of this environment with this cause."""
        self._native.abort(str(cause))

    def close(self) -> None:
        """Release gates, partitions, connections, threads and memory; a second call does nothing.

        Batches that were read stay valid. In a forked child it does nothing.
        """
        self._native.close()
