"""write(): writes a DataFrame, a source, or the result of an exchange to a sink, at once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from headgate._kinds import kind_of
from headgate._option_table import CONF_PREFIX
from headgate.batches import returned
from headgate.errors import OptionError, SchemaMismatchError
from headgate.spark.portable import portable
from headgate.spark.schema import arrow_schema_in_utc
from headgate.spark.worker_python import check_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate._group_size import GroupSize
    from headgate.batches import Batches, BatchFunction
    from headgate.sink import Sink, WriteResult
    from headgate.source import Source
    from headgate.spark.options import ExchangeOptions, NumPartitions
    from headgate.spark.plan.request import By, Input

_LOG: Final = logging.getLogger("headgate.spark")
_CHAINED: Final = "write: the tasks that return the rows of exchange %s also write them"
_APART: Final = "write: Spark gives the rows to the tasks that write them: %s"
#: The columns that a task returns: one row with what it has staged.
MANIFEST: Final = "committable binary, rows long"
_BODY: Final = "headgate.spark.write"
#: Options of a file sink that a caller may look for here, as they are methods of Spark's writer or options of a table.
_OF_SINK: Final = frozenset({"partition_by", "target_file_size", "compact_below", "time_zone"})


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The pickled part of a writing task.

    Attributes:
        sink: the sink.
        job: name of the batch.
        schema: the schema that batches are cast to; None for that of the first batch.
    """

    sink: Sink
    job: str
    schema: pa.Schema | None


def write(
    df: DataFrame | Source[pa.RecordBatch, Any, Any],
    sink: Sink,
    *,
    spark: SparkSession | None = None,
    by: By = None,
    map: BatchFunction | None = None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None = None,
    schema: StructType | pa.Schema | str | None = None,
    num_partitions: NumPartitions | None = None,
    combine: BatchFunction | None = None,
    sort_within: str | Column | Iterable[str | Column] | None = None,
    parallelism: int | None = None,
    **options: Unpack[ExchangeOptions],
) -> WriteResult:
    """Write rows to a sink at once: all of them or none.

    The call runs a Spark job and returns when the rows are visible. With a DataFrame and no other
    argument, the tasks of the DataFrame write its rows; if an exchange has returned it, they do so
    without the JVM. With a source, or with an argument of :func:`~headgate.spark.exchange`, the rows go
    through an exchange, and its consumers write them without the JVM. Spark may run a task several times; the rows of exactly one attempt are kept, unless
    the sink's ``delivery`` is ``"at_least_once"``.

    Four consumers, each with all rows of its users, write one Parquet file or more each::

        write(clicks, FileSink("/data/clicks"), by="user", num_partitions=4)

    A folder for each day, as ``df.write.partitionBy("day")`` makes them, with files of about 128 MiB, each sorted by user::

        sink = FileSink("/data/days", partition_by="day", sort_within="user", target_file_size="128m")
        write(clicks, sink, by="day")

    Args:
        df: A DataFrame of a classic session. Or a :class:`headgate.source.Source` that ends and
            whose records are ``pyarrow.RecordBatch``.
        sink: The sink, such as :class:`headgate.sink.FileSink` for a folder of Parquet files. The
            driver and all executors must be able to write to it.
        spark: The session that reads a source. By default the active one.
        by: Which consumer writes each row: columns, a selector, a function or None, as in
            ``exchange()``.
        map: A function from an iterator of ``pyarrow.RecordBatch`` to another one, which runs before
            the rows are sent, as in ``exchange()``.
        reduce: A function of the same kind, which runs once per partition before its rows are
            written, as in ``exchange()``.
        schema: The columns that ``reduce`` returns, or ``map`` if there is no ``reduce``, as a
            DDL string, a ``StructType`` or a ``pyarrow.Schema``. They are the columns of the files.
        num_partitions: Number of consumers that write, from 1 to 8,000. By default the number
            of slots. With ``"auto"`` each writes a file, or more, for about ``advisory_bytes`` of rows.
        combine: A function that merges rows before they are sent, as in ``exchange()``.
        sort_within: Columns by which the rows of each consumer are sorted, as in ``exchange()``.
        parallelism: Number of producers that read a source, as in ``exchange()``.
        **options: The other options of ``exchange()``.

    Returns:
        A :class:`headgate.sink.WriteResult`: the number of ``rows``, their size on disk in
        ``bytes``, and the paths of the ``files``, relative to the sink's path.

    Raises:
        SinkError: The sink has data already and its mode is ``"error"``, or a file could not be
            written. No row is visible, unless the error says that the commit is decided: then the
            next job with this path, or ``FileSink.recover()``, completes it.
        SchemaMismatchError: The rows have no columns.
        OptionError: An argument has a value that it does not take. The other errors of
            ``exchange()`` are raised as there: UnknownColumnError, UnsupportedTypeError,
            NotBuiltError and SourceError.
        Exception: Spark's exception for a job that failed, also if ``map`` or ``reduce`` raised. No
            row is visible then.
    """
    from headgate.sink import Sink as SinkClass  # noqa: PLC0415 - imports pyarrow
    from headgate.sink.batch import Batch, Staged  # noqa: PLC0415
    from headgate.sink.file_options import MODES  # noqa: PLC0415
    from headgate.spark.plan.inputs import request_of  # noqa: PLC0415 - workers need nothing that plans
    from headgate.spark.plan.request import Input as Call  # noqa: PLC0415
    from headgate.spark.plan.sources import is_table, refuse_for_table  # noqa: PLC0415

    if not isinstance(sink, SinkClass):
        raise OptionError(
            f"sink is {kind_of(sink)}, not a headgate.sink.Sink",
            remedy="FileSink(path)",
        )
    mode = options.get("mode")
    if mode in MODES:
        raise OptionError(
            f"mode={mode!r} is not how rows are exchanged, but how a sink treats files that are there",
            asked=f"write(..., mode={mode!r})",
            remedy=f'FileSink(path, mode="{mode}")',
        )
    for name in _OF_SINK & options.keys():
        raise OptionError(
            f"{name} is an option of the sink, not of write()",
            asked=f"write(..., {name}={options[name]!r})",  # type: ignore[literal-required]
            remedy=f"FileSink(path, {name}={options[name]!r})",  # type: ignore[literal-required]
        )
    sink = _in_zone_of_session(sink, df, spark)
    arguments = {"num_partitions": num_partitions, "parallelism": parallelism, **options}
    chosen: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    batch = Batch(sink)
    parts = (by, map, combine, reduce, schema, sort_within)
    if is_table(df) and not chosen and all(part is None for part in parts):
        refuse_for_table(df, spark, None)
        check_workers(df.sparkSession)
        columns = file_schema(df.schema)
        manifests = _written(df, WriteTask(sink, batch.job, None))
    else:
        call = Call(df, by, map, chosen.pop("map_schema", None), sort_within, combine)
        columns = file_schema(request_of(call, reduce, schema, spark, chosen).result)
        task = WriteTask(sink, batch.job, columns)
        manifests = _exchanged(call, task, reduce, schema, {**chosen, "spark": spark})
    with batch.running(columns):
        # Spark returns one row of each task: that of the attempt that succeeded.
        tasks = [Staged(row["committable"], row["rows"]) for row in manifests.collect()]
        return batch.commit(tasks, columns)


@dataclass(frozen=True, slots=True)
class _ReduceAndWrite:
    """Takes the place of ``reduce``: writes what it returns, or the batches if there is none."""

    task: WriteTask
    reduce: BatchFunction | None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reduce = self.reduce
        return run(self.task, batches if reduce is None else returned("reduce", reduce(batches)))

    @property
    def largest_group(self) -> GroupSize | None:
        """The largest group that ``reduce`` got, if it has groups."""
        return getattr(self.reduce, "largest_group", None)


def run(task: WriteTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the batches of a task; yield a batch with what it has staged."""
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    from headgate.sink.batch import stage, writer_context  # noqa: PLC0415
    from headgate.spark.tasks.identity import this_task  # noqa: PLC0415

    context = writer_context(task.job, this_task().partition)
    staged = stage(task.sink, context, batches, task.schema)
    columns = {"committable": pa.array([staged.committable], pa.binary()), "rows": [staged.rows]}
    yield pa.RecordBatch.from_pydict(columns)


def file_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of files with these columns; any type, timestamps in UTC.

    Raises:
        SchemaMismatchError: The schema has no columns.
    """
    if not schema.names:
        raise SchemaMismatchError(
            "a sink needs rows with at least one column",
            have="no columns",
            remedy='add a column, such as df.withColumn("n", lit(1))',
        )
    return arrow_schema_in_utc(schema)


def _in_zone_of_session(sink: Sink, data: Any, spark: SparkSession | None) -> Sink:
    """Return the sink; timestamps in the names of its folders are in the session's time zone, as Spark reads them."""
    from headgate.sink import FileSink  # noqa: PLC0415 - imports pyarrow
    from headgate.spark.plan.sources import is_table, session_of  # noqa: PLC0415 - workers need nothing that plans

    if not isinstance(sink, FileSink) or not sink.partition_by or sink.time_zone is not None:
        return sink
    session = data.sparkSession if is_table(data) else session_of(spark)
    return replace(sink, time_zone=session.conf.get("spark.sql.session.timeZone") or "UTC")


def _written(df: DataFrame, task: WriteTask) -> DataFrame:
    """Return the manifests of the tasks of a DataFrame, which write its rows.

    If it is the result of an exchange, the tasks that return its rows write them, without the JVM.
    """
    from headgate._options import resolve  # noqa: PLC0415 - workers need nothing that plans
    from headgate.spark.confs import session_confs  # noqa: PLC0415
    from headgate.spark.plan.chain import after, chain_of  # noqa: PLC0415
    from headgate.spark.plan.read_auto.scan import Unsure  # noqa: PLC0415

    options = resolve("exchange", {}, session_confs(df.sparkSession, CONF_PREFIX))
    try:
        if options["chaining"] == "off":
            raise Unsure(f"chaining is off ({options.sources['chaining']})")
        chain = chain_of(df)
    except Unsure as reason:
        _LOG.info(_APART, reason)
        return df.mapInArrow(portable(task, _BODY, "headgate: write"), MANIFEST)
    _LOG.info(_CHAINED, chain.returning.exchange[:4])
    return after(chain, task, _BODY, "write", MANIFEST, is_by_row=True, may_keep=False)


def _exchanged(
    call: Input,
    task: WriteTask,
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    options: dict[str, Any],
) -> DataFrame:
    """Return the manifests of the consumers of an exchange, which write their rows."""
    from headgate.spark.exchange import exchange  # noqa: PLC0415

    # The writing function takes the place of reduce, so schema is for what map returns.
    is_of_map = call.map is not None and reduce is None
    map_schema, order = schema if is_of_map else call.map_schema, call.sort_within
    options = {
        **options,
        "map_schema": map_schema,
        "sort_within": order,
        "combine": call.combine,
    }
    return exchange(
        call.data, call.by, call.map, _ReduceAndWrite(task, reduce), MANIFEST, **options
    )
