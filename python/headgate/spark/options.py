"""The options of an exchange, typed for callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from headgate.options import Duration, Size, TaskOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: How rows travel; see the option of this name.
Mode: TypeAlias = Literal["auto", "kept", "spark"]
#: The reader of a scan of files; see the option of this name.
Read: TypeAlias = Literal["auto", "spark"]
#: The tasks that send what another exchange has returned; see the option of this name.
Chaining: TypeAlias = Literal["auto", "off"]
#: The number of partitions of the result; see the option of this name.
NumPartitions: TypeAlias = int | Literal["auto"]
#: The place in which the driver shows progress; see the option of this name.
Progress: TypeAlias = Literal["auto", "log", "off"]


class ExchangeOptions(TaskOptions, total=False):
    """Keyword arguments of :func:`headgate.spark.exchange` that follow its parameters."""

    batch_bytes: Size | None
    advisory_bytes: Size | None
    broadcast_bytes: Size | None
    mode: Mode | None
    read: Read | None
    chaining: Chaining | None
    consumer_timeout: Duration | None
    progress: Progress | None
    map_schema: StructType | pa.Schema | str | None
