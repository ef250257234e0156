"""All errors that Headgate raises: one class per code, four lines of text per error.

This module imports only the root class beside it and the standard library, so that the native
module, the Python API and the Spark layer can all use it. The native module raises through
:func:`from_code`.

The text of an error has four lines::

    [HG-2101] a streaming job on Spark needs a slot for each worker, here 16; the cluster has 8
      asked   workers=16 (argument)        have  2 executors x 4 cores
      do one  workers=8 · a master with at least 16 slots
      more    python -m headgate explain HG-2101

A line without content is left out. Codes: 1xxx options and environment, 2xxx scheduling, 3xxx
network, 4xxx schema and data, 5xxx memory and disk, 6xxx user functions, 9xxx bugs in Headgate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate._error import HeadgateError as HeadgateError  # noqa: PLC0414 - part of this module's API
from headgate._error import HeadgateWarning as HeadgateWarning  # noqa: PLC0414 - part of this module's API

if TYPE_CHECKING:
    from collections.abc import Mapping

# 1xxx: options and environment


class OptionError(HeadgateError, ValueError):
    """An option has an unknown name, the wrong type or a value outside its limits."""

    code = "HG-1001"
    is_final = True
    default_remedy = "give a value within the limits of docs/options.md"


class ClosedError(HeadgateError, RuntimeError):
    """An environment, partition, writer, gate or reader was used after it was closed."""

    code = "HG-1002"
    default_remedy = "keep the object open while it is used · create a new one"


class ForkError(HeadgateError, RuntimeError):
    """An environment, or a streaming job, was used in a forked child of the process that created it."""

    code = "HG-1003"
    default_remedy = "create the environment in the child · start the child with spawn"


class SystemLimitError(HeadgateError, OSError):
    """The operating system refused a thread, or another thing that every environment needs."""

    code = "HG-1004"
    default_remedy = "a larger ulimit -u · a larger pids.max of the container · fewer tasks at once"


class JavaNotFound(HeadgateError, RuntimeError):
    """Spark needs Java 17 or newer, and none was found."""

    code = "HG-1101"
    default_remedy = "apt-get install openjdk-17-jre-headless · set JAVA_HOME to a Java 17 or newer"


class WorkerPythonError(HeadgateError, ImportError):
    """The Python that runs the tasks cannot import headgate."""

    code = "HG-1102"
    default_remedy = "PYSPARK_PYTHON=<the driver's Python> · the wheel on every executor"


class PackageNotFound(HeadgateError, ImportError):
    """A command needs Python packages that are not installed."""

    code = "HG-1103"
    is_final = True
    default_remedy = 'pip install "headgate[spark]" · pip install "headgate[demo]" for the demo'


class NativeModuleNotFound(HeadgateError, ImportError):
    """The call needs the native module, which the installed wheel does not have."""

    code = "HG-1104"
    is_final = True
    default_remedy = (
        'Linux on x86-64 with glibc 2.28 or newer, and there the wheel "manylinux" of the same version · '
        "exchange(df, ...), whose rows Spark moves without that module"
    )


class ExecutorSilent(HeadgateError, TimeoutError):
    """An executor did not answer the doctor in time."""

    code = "HG-1201"
    default_remedy = "look at that executor's log · run the doctor again when slots are free"


class VersionsDiffer(HeadgateError, RuntimeError):
    """Driver and executors have different versions of Python, pyarrow or pyspark, or other machines."""

    code = "HG-1202"
    default_remedy = "the same environment on the driver and on all executors"


class ClocksDiffer(HeadgateError, RuntimeError):
    """The clock of an executor differs from the driver's by more than a second."""

    code = "HG-1203"
    default_remedy = "run chrony or another NTP client on all hosts"


class FilesReadable(HeadgateError, PermissionError):
    """Other users of a host may read what Spark writes to its local directories."""

    code = "HG-1204"
    default_remedy = "spark.io.encryption.enabled=true · executors with a umask of 077"


class SparkNotStarted(HeadgateError, RuntimeError):
    """Spark did not start the application that a command needs."""

    code = "HG-1205"
    default_remedy = (
        "another --master · the confs of your applications as --conf · HADOOP_CONF_DIR for YARN"
    )


# 2xxx: scheduling


class NotEnoughSlots(HeadgateError, RuntimeError):
    """The workers of a streaming job cannot run at the same time on this cluster."""

    code = "HG-2101"
    default_remedy = "fewer workers · more slots"


class NotBuiltError(HeadgateError, NotImplementedError):
    """The call is valid, but this version of Headgate does not support it."""

    code = "HG-2201"
    is_final = True
    default_remedy = "a classic Spark session · df.repartition(n, key).mapInArrow(f, schema)"


class CancelledError(HeadgateError, RuntimeError):
    """The run was cancelled. This is never the cause of a failure, only its consequence."""

    code = "HG-2301"
    default_remedy = "nothing, if you cancelled it · look at the first error of the job otherwise"


# 3xxx: network


class PeerLostError(HeadgateError, ConnectionError):
    """A peer closed its connection before its data was complete, or fell silent."""

    code = "HG-3001"
    default_remedy = "look for an out-of-memory kill in that executor's log · run the action again"


class HandshakeError(HeadgateError, ConnectionError):
    """The peer could not prove that it belongs to this exchange, run and epoch."""

    code = "HG-3002"
    default_remedy = "give both ends the same secret, exchange_id, run and epoch"


class VersionError(HeadgateError, ConnectionError):
    """The two ends have no version of the protocol in common."""

    code = "HG-3003"
    default_remedy = "install the same version of headgate on the driver and on all executors"


class ProtocolError(HeadgateError, ConnectionError):
    """The peer sent something that is not a frame, or a frame outside the agreed limits."""

    code = "HG-3004"
    default_remedy = "point the address at a Headgate process · install the same version everywhere"


class IntegrityError(HeadgateError, ConnectionError):
    """Data arrived changed, twice, out of order or not at all."""

    code = "HG-3005"
    default_remedy = "run the action again · test that host's memory and network if it repeats"


class PartitionNotFoundError(HeadgateError, ConnectionError, LookupError):
    """The producer's process has no such partition, or its subpartition has a reader already."""

    code = "HG-3006"
    default_remedy = "use the address while the partition is open · one gate per subpartition"


class ConnectError(HeadgateError, ConnectionError):
    """A producer could not be reached."""

    code = "HG-3007"
    default_remedy = (
        "open that port between the executors · give an address that the peer can reach"
    )


class CoordinatorError(HeadgateError, ConnectionError):
    """The coordinator on the Spark driver could not be reached, or closed the connection."""

    code = "HG-3008"
    default_remedy = (
        "set spark.driver.host to an address that executors can reach · look at the driver"
    )


class TaskEventError(HeadgateError, LookupError):
    """A producer refused an event that a consumer sent to it."""

    code = "HG-3009"
    default_remedy = "partition.on_task_event(name, handler) before consumers connect"


class TlsError(HeadgateError, ConnectionError):
    """A connection could not be encrypted, or an encrypted one was cut or altered."""

    code = "HG-3010"
    default_remedy = (
        "the same tls option in all processes · certificates of one authority, not expired"
    )


class CertificatesRefused(HeadgateError, ValueError):
    """The files of certificates changed, and cannot be used; connections go on with what they held before."""

    code = "HG-3011"
    default_remedy = "write a certificate, its key and its authority in PEM that belong together"


class SlowLink(HeadgateError, ConnectionError):
    """Rows between two executors travel much slower than between the others."""

    code = "HG-3101"
    default_remedy = "look at the link, the CPU and the neighbours of that host · exclude it"


# 4xxx: schema and data


class UnknownColumnError(HeadgateError, LookupError):
    """The data has no column of the given name."""

    code = "HG-4001"
    is_final = True
    default_remedy = "name one of the columns"


class UnsupportedTypeError(HeadgateError, TypeError):
    """A column has a type that Headgate cannot send, or cannot hash."""

    code = "HG-4002"
    is_final = True
    default_remedy = "cast the column · drop it before the exchange"


class SchemaMismatchError(HeadgateError, TypeError):
    """A batch does not have the agreed schema."""

    code = "HG-4003"
    is_final = True
    default_remedy = "cast the batch to the schema · give the schema that the batches have"


class SelectorError(HeadgateError, ValueError):
    """A selector returned something that is not one channel number per row."""

    code = "HG-4004"
    default_remedy = "return one integer from 0 to num_subpartitions - 1 for each row"


class CorruptPageError(HeadgateError, ValueError):
    """The bytes of a page are not a record batch of the agreed schema."""

    code = "HG-4005"
    default_remedy = "run the action again · report it with both versions if it repeats"


class StateVersionError(HeadgateError, ValueError):
    """A split or checkpoint has a version that this source cannot read."""

    code = "HG-4006"
    is_final = True
    default_remedy = "use the version that wrote it · give the source a deserialize() for both"


class StateError(HeadgateError, ValueError):
    """Keyed state was declared or used in a way that its keys, kind or type do not allow."""

    code = "HG-4007"
    is_final = True
    default_remedy = "backend.set_keys() before any use · one value for each key or row"


class StreamError(HeadgateError, ValueError):
    """A streaming job is put together in a way that cannot run."""

    code = "HG-4008"
    is_final = True
    default_remedy = "build the job as docs/streams.md does"


# 5xxx: memory and disk


class PoolTooSmallError(HeadgateError, MemoryError):
    """The pool has fewer segments than its channels need at least."""

    code = "HG-5001"
    default_remedy = "a larger memory · a smaller segment_size · fewer partitions"


class RecordTooLargeError(HeadgateError, ValueError):
    """One record is larger than max_record_size."""

    code = "HG-5002"
    is_final = True
    default_remedy = "a larger max_record_size · smaller rows"


class SpillError(HeadgateError, OSError):
    """A temporary file for spilled data could not be made, written or read."""

    code = "HG-5003"
    default_remedy = "temp_directories on a disk with room · a larger spill_threshold"


class SnapshotError(HeadgateError, OSError):
    """A snapshot of keyed state is damaged or incomplete, or could not be written or read."""

    code = "HG-5004"
    default_remedy = "restore an older snapshot · restore missing files from a backup"


class CheckpointError(HeadgateError, OSError):
    """A checkpoint of a streaming job cannot be written or read, or belongs to another driver now."""

    code = "HG-5005"
    default_remedy = "a checkpoint folder that driver and workers share, with free space · the folder of one job only"


class MemoryLimitTooSmall(HeadgateError, MemoryError):
    """The pools of an executor's processes do not fit the memory that its container has for them."""

    code = "HG-5101"
    default_remedy = "a larger spark.executor.memoryOverhead · a smaller memory"


class SlowDisk(HeadgateError, OSError):
    """A local directory of Spark is slow or nearly full."""

    code = "HG-5102"
    default_remedy = "spark.local.dir (or the cluster manager's) on a fast local disk with room"


# 6xxx: user functions


class UserFunctionError(HeadgateError):
    """The function map, reduce or by raised; the error has its traceback."""

    code = "HG-6001"
    default_remedy = "fix the function: its traceback is below"


class ProducerFailedError(HeadgateError):
    """A producer ended before its data was complete."""

    code = "HG-6002"
    default_remedy = "fix the cause below · run the action again"


class SourceError(HeadgateError):
    """A source's reader, enumerator or data failed; the text names the split and the file."""

    code = "HG-6003"
    default_remedy = "fix the cause below · run the action again"


class SinkError(HeadgateError):
    """A sink failed; nothing of the job is visible, unless the text says the commit is decided."""

    code = "HG-6004"
    default_remedy = "fix the cause below · run the action again"


# 9xxx: bugs in Headgate


class InternalError(HeadgateError):
    """A bug in Headgate."""

    code = "HG-9001"
    default_remedy = "report it with the versions of headgate, pyarrow, pyspark and Python"


#: The class of each code, in the order of the codes.
ERRORS: dict[str, type[HeadgateError]] = {c.code: c for c in HeadgateError.__subclasses__()}


def code_text(code: int | str) -> str:
    """Return the canonical form of a code: 2101, "2101" and "hg2101" all give "HG-2101"."""
    text = str(code).strip().upper().removeprefix("HG").removeprefix("-")
    return f"HG-{text}"


def from_code(
    code: int | str,
    summary: str,
    asked: str = "",
    have: str = "",
    remedy: str = "",
    details: Mapping[str, Any] | None = None,
) -> HeadgateError:
    """Return (not raise) the error of a code that comes from the native module or another process.

    An unknown code, as a newer peer may send, becomes an :class:`InternalError` that names the code
    in its summary and details.
    """
    cls = ERRORS.get(code_text(code))
    if cls is None:
        return InternalError(
            f"{summary} (unknown code {code_text(code)})",
            asked=asked,
            have=have,
            remedy=remedy,
            details={**(details or {}), "code": code_text(code)},
        )
    return cls(summary, asked=asked, have=have, remedy=remedy, details=details)
