from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Self, TypeAlias, final

import pyarrow as pa

#: Of int64, without nulls: a numpy array, which costs less, or one of Arrow.
_Numbers: TypeAlias = Any

__version__: str
__debug_build__: bool

def check_schema(schema: pa.Schema) -> None:
    """Raise an error that names the first column that cannot travel in pages."""

def decode_channel_state(parts: bytes, schema: pa.Schema | None = None) -> list[Any]:
    """Return the batches of a channel's state, or without a schema its bytes records."""

def hash_partition_ids(batch: Any, columns: Sequence[str], num_partitions: int) -> pa.UInt32Array:
    """Return the subpartition of each row by Spark's hash partitioning."""

def key_groups_of_state(keys: Any, max_parallelism: int) -> pa.UInt32Array:
    """Return the key group of each row of a batch, whose key is all columns."""

def key_groups(keys: Any, max_parallelism: int) -> pa.UInt32Array:
    """Return Flink's key group of each key."""

def is_reserved_event(name: str) -> bool:
    """Return True for the name of an event that is not the user's, such as ``EndOfData(Drain)``."""

def trace_events(most: int) -> tuple[list[str], list[tuple[float, str, str]], int]:
    """Return the recorded kinds, the newest events with their epoch seconds and kinds, and the number of others."""

def write_kept_indexes(pages: str, has_pages: bool, indexes: Sequence[tuple[int, bytes]]) -> None:
    """Write the indexes of a producer to a file beside its pages."""

def read_kept_index(indexes: str, subpartition: int) -> tuple[bytes, PurePath | None] | None:
    """Return the index of a subpartition and the file of its pages; None if it has no rows."""

def self_signed_certificate() -> tuple[str, str]:
    """Return a certificate that its own key signs, and this key, both in PEM."""

def keep_small(
    schema: pa.Schema,
    columns: Sequence[Sequence[str]],
    batch: pa.RecordBatch,
    n: int,
    *,
    all_bytes: int,
    page_bytes: int,
    max_page_bytes: int,
) -> list[tuple[int, int, int, bytes]] | None:
    """Place rows by hash; return each subpartition's number, rows, page bytes, and index with page."""

def join_intervals(keys: _Numbers, starts: _Numbers, ends: _Numbers) -> list[pa.Int64Array]:
    """Join a key's intervals that overlap or touch; return each one's joint one, and of these the first one and the end."""

def rows_by_group(
    groups: _Numbers, numbers: _Numbers | None = None, nulls: Any = None
) -> list[pa.Int64Array]:
    """Return the rows in the order of groups, then numbers, nulls (uint8) last; and of each its place in its group."""

@final
class StateMemory:
    """Memory of keyed state: of the process up to a limit, of mapped files beyond it."""

    def __new__(cls, limit: int | None, directories: Sequence[str]) -> Self: ...
    def share(self) -> StateMemory:
        """Return a memory under the same limit that counts its own blocks."""

    def file(self, size: int) -> int:
        """Make a file without a name, with its room; return its descriptor, which is the caller's."""

    def reserve(self, size: int) -> bool:
        """Count bytes, unless they are few; True if they may be memory of the process, False if they are to be a file."""

    def release(self, size: int, in_memory: bool) -> None:
        """Count reserved bytes no more."""

    def want(self, start: int, width: int, places: Any) -> None:
        """Have the kernel begin to read the values at some places of a file that is mapped at an address."""

    @property
    def usage(self) -> tuple[int, int]:
        """Bytes in memory and bytes in files."""

@final
class KeyIndex:
    """An index from keys to slots."""

    def __new__(cls, schema: pa.Schema, memory: StateMemory | None = None) -> Self: ...
    def resolve(self, of: Sequence[Any]) -> list[pa.Int64Array]:
        """Return each row's distinct key, and of these the slots, the first rows and the new ones."""

    def reserve(self, keys: int) -> None:
        """Make room for more keys at once."""

    def find(self, of: Sequence[Any]) -> pa.Int64Array:
        """Return the slot of each row's key, or -1."""

    def keys(self, slots: _Numbers) -> list[pa.Array]:
        """Return the keys of slots, as columns."""

    def remove(self, slots: _Numbers) -> None:
        """Remove the keys of slots."""

    @property
    def num_keys(self) -> int: ...

@final
class Chains:
    """Chains of nodes, one per owner."""

    def __new__(cls, memory: StateMemory | None = None) -> Self: ...
    def take(self, count: int) -> pa.Int64Array:
        """Return nodes that are in no chain: those that were given back last, then new ones."""

    def give_back(self, nodes: _Numbers) -> None:
        """Take back nodes that are in no chain any more."""

    def append(self, owners: _Numbers, nodes: _Numbers) -> None:
        """Append each node to its owner's chain."""

    def remove(self, owners: _Numbers, nodes: _Numbers) -> None:
        """Remove each node from its owner's chain."""

    def collect(self, owners: _Numbers) -> list[pa.Int64Array]:
        """Return the length of each owner's chain, and all nodes."""

    def clear(self, owners: _Numbers) -> None:
        """Empty the chains of owners."""

@final
class ArrowValues:
    """Values of a type by position, a number that is at least 1. The type is that of a schema's only column."""

    def __new__(cls, schema: pa.Schema, memory: StateMemory | None = None) -> Self: ...
    def evolved(self, schema: pa.Schema) -> ArrowValues:
        """Return the same values as structs with more fields, which are null."""

    def put(self, batch: pa.RecordBatch, replaced: _Numbers) -> int:
        """Drop values at positions, and store others; return the position of the first, which the others follow."""

    def drop(self, positions: _Numbers) -> None:
        """Drop values; 0 is none, and a value may be there twice."""

    def freeze(self) -> FrozenValues:
        """Return the values as they are now, without a copy."""

    def __len__(self) -> int:
        """Number of values in memory, with those that are dropped and not freed yet."""

@final
class FrozenValues:
    """Values by position, as they were at one moment. Any thread may read them."""

    def take(self, positions: _Numbers) -> pa.Array:
        """Return the values at positions, null for 0."""

@final
class TimeQueue:
    """Numbers by time."""

    def __new__(cls, memory: StateMemory | None = None) -> Self: ...
    def push(self, times: _Numbers, numbers: _Numbers) -> None:
        """Add a number for each time."""

    def until(self, time: int) -> list[pa.Int64Array]:
        """Return the times up to one and their numbers, in the order of both, each pair once."""

    def pop(self, until: int) -> list[pa.Int64Array]:
        """Remove what :meth:`until` returns."""

    @property
    def first(self) -> int | None:
        """The first time; None if there is none."""

    def first_after(self, time: int) -> int | None:
        """Return the first time after one; None if there is none."""

    def clear(self) -> None:
        """Remove all."""

    def __len__(self) -> int: ...

@final
class OwnFrames:
    """Iterates over what a task yields; of an error it raises what a function returns for it."""

    def __new__(
        cls, iterator: Iterator[Any], shown: Callable[[BaseException], BaseException]
    ) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Environment:
    def __new__(
        cls,
        options: Mapping[str, Any],
        *,
        secret: bytes,
        exchange: bytes,
        run: int,
        epoch: int,
        process: bytes | None = None,
    ) -> Environment: ...
    @property
    def process_id(self) -> bytes: ...
    def address(self) -> tuple[str, int]: ...
    def create_result_partition(
        self,
        wanted: Sequence[bool],
        lost_consumer_timeout: float,
        kind: str,
        compression: str,
        max_spill_size: int,
        partition_id: bytes | None = None,
        task_events: Sequence[str] = ...,
    ) -> ResultPartition: ...
    def create_input_gate(self) -> InputGate: ...
    def serve(self, partition_id: bytes, indexes: str) -> None: ...
    def take_damaged(self) -> list[bytes]:
        """Return the ids of served partitions whose files were found damaged since the last call."""

    def take_tls_refusal(self) -> str | None:
        """Return why changed files of certificates cannot be used, once for each of their states."""

    def withdraw(self, partition_id: bytes) -> bool: ...
    def abort(self, cause: str) -> None: ...
    def close(self) -> None: ...
    def waits(self) -> tuple[int, int, int, int]: ...
    def stats(self) -> dict[str, Any]: ...

@final
class ResultPartition:
    @property
    def id(self) -> bytes: ...
    @property
    def num_subpartitions(self) -> int: ...
    @property
    def is_released(self) -> bool: ...
    def release_subpartition(self, index: int) -> None: ...
    def wait_consumed(self, timeout: float | None = None) -> bool: ...
    def wait_all_data_processed(self, timeout: float | None = None) -> bool: ...
    def subscribe_task_event(self, name: str) -> None: ...
    @property
    def has_task_events(self) -> bool: ...
    def take_task_event(self) -> tuple[int, str, bytes] | None: ...
    def keep(self, file: str, inline_limit: int) -> tuple[list[tuple[int, int, bytes]], bool]: ...
    def fail(self, cause: str) -> None: ...
    def close(self) -> None: ...

@final
class InputGate:
    @property
    def num_channels(self) -> int: ...
    def add_channel(
        self,
        host: str,
        port: int,
        process: bytes,
        partition: bytes,
        subpartition: int,
        schema: pa.Schema | None = None,
    ) -> int: ...
    def add_kept_channel(self, kept: bytes, file: str | None = None) -> int: ...
    def add_unknown_channel(self) -> int: ...
    def update_channel(
        self,
        channel: int,
        host: str,
        port: int,
        process: bytes,
        partition: bytes,
        subpartition: int,
        schema: pa.Schema | None = None,
    ) -> bool: ...
    def is_unknown(self, channel: int) -> bool: ...
    def end_of_data_status(self) -> int: ...
    def num_ended_channels(self) -> int: ...
    def send_task_event(self, name: str, body: bytes) -> None: ...
    def announce_buffer_size(self, size: int) -> None: ...
    def resume_consumption(self, channel: int) -> None: ...
    def convert_to_priority(self, channel: int, sequence: int) -> bool: ...
    def acknowledge_all_records_processed(self, channel: int) -> None: ...
    def enable_checkpointing(self, after_finish: bool) -> None: ...
    def abort_checkpoint(self, checkpoint: int, reason: str) -> None: ...
    def seal(self) -> None: ...
    def fail(self, cause: str) -> None: ...
    def close(self) -> None: ...

@final
class UnionInputGate:
    def __new__(cls, gates: Sequence[InputGate]) -> UnionInputGate: ...
    @property
    def num_channels(self) -> int: ...
    def num_ended_channels(self) -> int: ...
    def end_of_data_status(self) -> int: ...
    def enable_checkpointing(self, after_finish: bool) -> None: ...
    def abort_checkpoint(self, checkpoint: int, reason: str) -> None: ...
    def close(self) -> None: ...

@final
class RecordWriter:
    def __new__(
        cls,
        partition: ResultPartition,
        selector: tuple[str, tuple[Any, ...]],
        schema: pa.Schema | None = None,
        *,
        timeout: float = ...,
    ) -> RecordWriter: ...
    def emit(self, record: Any) -> None: ...
    def emit_to(self, record: Any, channels: Any) -> None: ...
    def broadcast_emit(self, record: Any) -> None: ...
    def random_emit(self, record: Any) -> None: ...
    def broadcast_event(self, name: str, body: bytes, data_type: int) -> None: ...
    def broadcast_barrier(self, barrier: tuple[int, int, str, int, bytes]) -> None: ...
    def broadcast_cancellation(self, checkpoint_id: int) -> None: ...
    def take_channel_state(self, checkpoint: int) -> list[tuple[int, bytes]] | None: ...
    def end_of_data(self, drain: bool) -> None: ...
    def flush(self) -> None: ...
    def finish(self) -> None: ...
    def fail(self, cause: str) -> None: ...
    def stats(self) -> tuple[int, int, int]: ...
    def is_available(self) -> bool: ...
    def wait_available(self, timeout: float | None = None) -> bool: ...
    def wake_up(self) -> None: ...
    def wake_up_on_priority_events(self, gate: InputGate | UnionInputGate) -> None: ...
    def back_pressured_ns(self) -> int: ...

@final
class RecordReader:
    def __new__(
        cls,
        gate: InputGate | UnionInputGate,
        schema: pa.Schema | None = None,
        batch_bytes: int = 0,
    ) -> RecordReader: ...
    def next(self) -> Any: ...
    def poll_next(self) -> Any: ...
    def poll_priority_event(self) -> Any: ...
    def next_into(self, buffer: Any) -> Any: ...
    def snapshot_taken(self, checkpoint: int) -> None: ...
    def take_channel_state(self, checkpoint: int) -> list[tuple[int, bytes]]: ...
    def next_timer_ms(self) -> int | None: ...
    def wait_available(self, timeout: float | None = None) -> bool: ...
    def wake_up(self) -> None: ...
    def totals(self) -> tuple[int, int]: ...
    def is_available(self) -> bool: ...
    def is_finished(self) -> bool: ...
    def open_descriptor(self) -> int:
        """Return a descriptor, owned by the reader, that is readable when a poll may succeed."""

    def clear_descriptor(self) -> None: ...
    def close_descriptor(self) -> None: ...

@final
class BufferReader:
    def __new__(cls, gate: InputGate | UnionInputGate) -> BufferReader: ...
    def next(self) -> tuple[int, int, int, bytes] | None: ...
    def poll_next(self) -> tuple[int, int, int, bytes] | None: ...
    def wait_available(self, timeout: float | None = None) -> bool: ...
    def wake_up(self) -> None: ...
    def is_available(self) -> bool: ...
    def is_finished(self) -> bool: ...
    def open_descriptor(self) -> int:
        """Return a descriptor, owned by the reader, that is readable when a poll may succeed."""

    def clear_descriptor(self) -> None: ...
    def close_descriptor(self) -> None: ...

@final
class ControlKey:
    """The key of an exchange's control connections, derived from its secret of 32 bytes."""

    def __new__(cls, secret: bytes, exchange_id: bytes, tls: bool = False) -> ControlKey: ...
    @property
    def tls(self) -> bool:
        """True if the connections must be encrypted."""

@final
class ControlHandshake:
    """One end of the handshake of a control connection, without I/O."""

    @staticmethod
    def dial(
        key: ControlKey, exchange_id: bytes, max_message: int, binding: bytes | None
    ) -> ControlHandshake:
        """Start the worker's end; its HELLO is the first output.

        The proofs cover ``binding``, that of the TLS session below; None without TLS.
        """

    @staticmethod
    def accept(
        key: ControlKey, exchange_id: bytes, max_message: int, binding: bytes | None
    ) -> ControlHandshake:
        """Start the coordinator's end, for the exchange that the HELLO requests.

        The proofs cover ``binding``, that of the TLS session below; None without TLS.
        """

    @staticmethod
    def requested_exchange(data: bytes) -> bytes | None:
        """Return the exchange that a HELLO requests, or None if more bytes are needed."""

    def handle(self, data: bytes) -> int:
        """Take bytes of the peer; return how many of them belong to the handshake."""

    def take_output(self) -> bytes:
        """Return the bytes to write, once; after an error, the rejection."""

    @property
    def session(self) -> bytes | None:
        """The session key of 32 bytes, once the peer has proved itself."""

@final
class TlsEndpoint:
    """A key pair and a certificate of its own, for TLS sessions whose peer is proved by other means."""

    def __new__(cls) -> TlsEndpoint: ...
    def dial(self) -> TlsSession:
        """Start the side that dialed."""

    def accept(self) -> TlsSession:
        """Start the side that accepted."""

@final
class TlsSession:
    """One end of TLS 1.3 without I/O."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer, cut anywhere; return the clear bytes that are complete."""

    def send(self, data: bytes) -> None:
        """Encrypt bytes into the output."""

    def take_output(self) -> bytes:
        """Return the bytes to write, once; after an error, the alert."""

    @property
    def binding(self) -> bytes | None:
        """32 bytes that only the two ends know, once the handshake of TLS is done."""

@final
class HeartbeatManager:
    """A thread that sends and receives heartbeats on sockets, and never needs the GIL."""

    def __new__(cls) -> HeartbeatManager: ...
    def door(self) -> int:
        """Return a Unix socket, owned by the caller, over which to pass sockets to the thread."""

    def monitor(self, timeout: float, tls: TlsSession | None = None) -> int:
        """Take the socket that was passed last, and what encrypts it; return the number of its target."""

    def unmonitor(self, target: int) -> None: ...
    @property
    def num_silent(self) -> int: ...
    def silence(self, target: int) -> float | None: ...
    def close(self) -> None: ...
