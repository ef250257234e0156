"""exchange(): chooses between Headgate and Spark's own shuffle, and plans the chosen one."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from headgate.batches import Batches
from headgate.errors import HeadgateWarning, NativeModuleNotFound
from headgate.observe.runs import RUNS
from headgate.spark.plan.inputs import requests_of
from headgate.spark.plan.request import Input
from headgate.spark.plan.sources import is_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.observe.record import Run
    from headgate.source import Source
    from headgate.spark.options import ExchangeOptions, NumPartitions
    from headgate.spark.plan.request import By, Request

_LOG: Final = logging.getLogger("headgate.spark")
_REPARTITION: Final = (
    "exchange by %s -> %d partitions: Spark's own repartition moves the rows, because %s"
)


def exchange(
    df: DataFrame
    | Source[pa.RecordBatch, Any, Any]
    | Sequence[DataFrame | Source[pa.RecordBatch, Any, Any] | Input],
    by: By = None,
    map: BatchFunction | None = None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None = None,
    schema: StructType | pa.Schema | str | None = None,
    num_partitions: NumPartitions | None = None,
    *,
    combine: BatchFunction | None = None,
    sort_within: str | Column | Iterable[str | Column] | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    explain: bool = False,
    **options: Unpack[ExchangeOptions],
) -> DataFrame:
    """Repartition rows directly between Python workers, with a function before and after.

    The call replaces ``df.mapInArrow(map, ...).repartition(n, by).mapInArrow(reduce, ...)``. Its
    producer tasks run ``map`` on the input and send each row to one of ``num_partitions`` consumer
    tasks, which run ``reduce``. Between the two, rows stay Arrow batches, which the JVM does not
    touch.

    The call is lazy and returns an ordinary DataFrame. Headgate plans it in one of two ways:

    - Without ``map`` and ``combine``, and if ``by`` names columns or is left out: Spark's own ``repartition`` and
      ``mapInArrow(reduce)``, because Python between them would only add work.
    - *Kept*, in all other cases: an ordinary Spark job whose producers keep their rows in files.
      Consumers map the files of their own host, and get others from a small process beside each executor.

    For producers and consumers that run at the same time there are streaming jobs: see docs/streams.md.

    The action raises the errors of a running job, as Spark's exception. If ``map`` or ``reduce``
    raised an exception, the text has its traceback. Otherwise the text has a code, such as
    ``[HG-4003]`` for returned columns that do not fit the schema; ``python -m headgate explain HG-4003``
    explains it.

    If a worker or an executor is lost, Spark runs the lost tasks again. They call ``map`` and ``reduce``
    again, which must return the same rows for the same input. In ``local[n]`` Spark retries no task, so
    the job fails if it loses one.

    Args:
        df: One of these:

            - a DataFrame, also one that an exchange has returned. In a session of Spark Connect, Spark's own shuffle moves its rows unless the
              exchange is kept
            - a :class:`headgate.source.Source` that ends and whose records are
              ``pyarrow.RecordBatch``. The producers read it themselves, without the JVM. The call lists
              its splits, and each task reads the same splits in each attempt
            - a list of DataFrames, sources and :class:`headgate.spark.Input`. Once per partition
              ``reduce`` gets an iterator of batches for each input, as in
              ``reduce=lambda trades, quotes: ...``. Rows with the same key are in the same partition.
              The exchange is kept. With ``Input(small, broadcast=True)`` each call gets all rows of that
              input, and those of the other one stay where they are; with ``broadcast="auto"`` if it is small

        by: Which partition each row goes to:

            - a column or several, of the rows that ``map`` returns: the partition in which
              ``repartition(n, *by)`` puts the row. A column is a name, the name of a field such as
              ``"address.city"``, or a Column such as ``F.col("user")``; without ``map`` it may be one
              that Spark computes, such as ``F.lower("user")``
            - a selector, such as :class:`headgate.BroadcastSelector`
            - a function that gets a ``pyarrow.RecordBatch`` and returns, for each of its rows, a
              partition number from 0 to ``num_partitions - 1``, as a list or an array
            - None, the default: each batch goes to the next partition in turn; without ``map``,
              Spark spreads single rows
        map: A function as ``mapInArrow`` takes it, called once per producer task with the rows of
            one partition of the input: an iterator of ``pyarrow.RecordBatch`` that is also a
            :class:`headgate.Batches`, so that ``pl.DataFrame(batches)``, ``pa.table(batches)`` and
            ``batches.read_all().to_pandas()`` work, also if there are no rows. It returns an
            iterator of batches or of any tables and DataFrames (pyarrow, polars, pandas, duckdb), or
            one of these. None sends the input unchanged.
        reduce: A function of the same kind, called once per partition with all rows of that
            partition, which usually have many keys. None returns the rows as they arrive.
        schema: The columns that ``reduce`` returns, or ``map`` if there is no ``reduce``, as a DDL
            string such as ``"user string, n long"``, a ``StructType`` or a ``pyarrow.Schema``;
            ``df.schema`` if they are those of the input. Headgate matches returned columns by name, and
            casts them if no value is lost. Leave it out if there is no function.
        num_partitions: Number of partitions of the result, from 1 to 8,000. By default the number of
            slots. With ``"auto"``, which needs columns as ``by``, there are as many, and ``reduce`` is
            called several times for each, with about ``advisory_bytes`` of rows: all rows of a key are
            still in one call
        combine: A function of the same kind that merges rows before they are sent, as for sums: producers
            send one row for each key instead of all, so a key with most of the rows costs little. It
            gets rows as they are sent (those of ``map``, or of the input) and returns rows with the same
            columns, which ``reduce`` can get in their place. It is called any number of times, also not
            at all, with any part of the rows and with what it returned before: of any keys, in any
            order. A consumer with many rows calls it too, so that ``reduce`` gets fewer. So it must merge only rows with the same key, and the result must not
            depend on the calls: :func:`headgate.testing.check` tries that
        sort_within: Columns by which the rows of each partition are sorted before ``reduce`` gets them,
            ascending, nulls first, as by ``sortWithinPartitions``. If Spark moves the rows, Spark sorts
            them. If not, the worker does, and uses files for more bytes than ``memory``.
        spark: The session that reads a source. By default the active one.
        parallelism: Number of producers that read a source, from 1 to 100,000. By default four per
            slot, if there are so many splits.
        explain: True to print, before anything runs, what :func:`explain` says of the result.
        **options: All options, with limits, are in ``docs/options.md``. Sizes are bytes or text
            such as ``"64m"``; times are seconds or text such as ``"10s"``. If the call does not give
            an option, the session's conf (``spark.headgate.segmentSize``) is read, then the
            environment (``HEADGATE_SEGMENT_SIZE``).

            - ``mode``: ``"auto"`` (default), ``"kept"`` or ``"spark"``, see docs/kept.md
            - ``read``: ``"auto"`` (default): if the DataFrame is only a scan of Parquet files or of a
              Delta table, and its rows are the same for sure, the workers read them without the JVM; or ``"spark"``,
              see docs/sources.md
            - ``chaining``: ``"auto"`` (default), or ``"off"``: by default the tasks that return the rows of an
              exchange also send those of the next one, see docs/kept.md
            - ``map_schema``: the columns that ``map`` returns, if there is also a ``reduce``; by
              default those of the input
            - ``progress``: ``"auto"`` (default), ``"log"`` or ``"off"``
            - memory of each Python worker: ``memory`` (64 MiB), ``segment_size``,
              ``max_record_size``, ``spill_threshold``, ``temp_directories``
            - batches: ``batch_bytes``, ``advisory_bytes`` (with ``num_partitions="auto"``), ``broadcast_bytes`` (with
              ``broadcast="auto"``), ``compression`` (``"none"``, ``"lz4"`` or ``"zstd"``), ``same_host_link`` (``"auto"`` or ``"off"``)
            - encryption: ``tls`` (``"auto"``, ``"require"`` or ``"off"``), and with certificates of
              your own ``tls_ca``, ``tls_certificate`` and ``tls_key``
            - ``consumer_timeout`` (60 s): the time in which a task must reach the driver
            - division of the memory: ``buffers_per_channel``, ``floating_buffers_per_gate``,
              ``max_buffers_per_channel``, ``max_overdraft_buffers``

    Returns:
        A DataFrame with ``num_partitions`` partitions (with ``"auto"`` one for each slot) and the columns of ``schema``.

    Raises:
        OptionError: An argument or option is unknown or has a value that it does not take; a function
            without ``schema``; the DataFrame is streaming; the source never ends or has no schema;
            ``parallelism`` with a DataFrame; ``mode="pipelined"`` or ``watermarks``, for which there are
            streaming jobs.
        UnknownColumnError: ``by`` names a column that the sent rows do not have.
        UnsupportedTypeError: A column has a type that cannot be sent, or cannot be a key.
        WorkerPythonError: The Python that runs tasks on this host cannot import headgate.
        NativeModuleNotFound: The wheel has no native module, and the rows cannot be moved without it.
        NotBuiltError: The readers of the source and its enumerator send each other events; or ``by`` may
            place rows by their order, on a cluster with a Spark before 4.1.
        SourceError: The source could not list its splits.

    Example:
        Rows of one user meet in one call of ``per_user``, sorted by time::

            import headgate as hg
            from headgate.spark import exchange

            def sessions(group):  # a pandas DataFrame with all rows of a user
                group["session"] = (group["at"].diff().dt.total_seconds() > 1800).cumsum()
                return group

            per_user = hg.per_key("user", sessions, sort="at", as_="pandas")
            out = exchange(
                clicks, by="user", reduce=per_user, schema="user string, at timestamp, session long"
            )
    """
    # Workers import this module, and need nothing that plans.
    from headgate.spark.explained.recent_plans import remember  # noqa: PLC0415
    from headgate.spark.plan.decide import decide  # noqa: PLC0415
    from headgate.spark.plan.rules import NO_NATIVE  # noqa: PLC0415
    from headgate.spark.plan.small_inputs import measured  # noqa: PLC0415

    map_schema = options.pop("map_schema", None)
    call = Input(df, by, map, map_schema, sort_within, combine)  # type: ignore[arg-type]
    others = {**options, "num_partitions": num_partitions, "parallelism": parallelism}
    is_listed = isinstance(df, (list, tuple))
    requests = requests_of(call, reduce, schema, spark, others)
    has_columns = is_listed or not is_table(df) or bool(df.columns)
    if not has_columns:
        requests = (_with_a_column(requests[0]),)
    plan, requests = decide(measured(requests), is_listed=is_listed)
    if plan.mode == "kept":
        from headgate.spark.plan.kept import keep  # noqa: PLC0415 - loads the native module

        result = keep(plan, requests)
    elif plan.mode == "broadcast":
        from headgate.spark.plan.broadcast import broadcast  # noqa: PLC0415 - only this way needs it

        result = broadcast(plan, requests)
    else:
        from headgate.spark.plan.shuffle import shuffle  # noqa: PLC0415 - only this way needs it

        way = _REPARTITION % (plan.call.by, plan.partitions, plan.why)
        _LOG.info(way)
        if plan.why == NO_NATIVE:
            warning = HeadgateWarning(way)
            warning.code = NativeModuleNotFound.code
            warnings.warn(warning, stacklevel=2)
        is_auto = plan.call.auto is not None
        result = shuffle(requests[0], plan.partitions, plan.name, is_auto=is_auto)
    remember(result, plan)
    if explain:
        from headgate.spark.explained.explain import explain as explanation_of  # noqa: PLC0415

        print(explanation_of(result))  # noqa: T201 - the caller asks for it
    return result if has_columns or map is not None or reduce is not None else result.select()


def last_stats() -> Run | None:
    """Return the statistics of the newest run of an exchange; None before the first one.

    If the run still goes on, the numbers are those of this moment. Rows and times of a kept exchange
    are those of ended tasks; with ``progress="off"`` its run is known when its first task has ended.
    Without ``map`` Spark moves the rows, and there is no run.
    """
    return RUNS.newest("kept")


def _with_a_column(request: Request) -> Request:
    """Give rows without columns one for the trip: Spark passes no rows to Python if there are no columns."""
    from pyspark.sql.functions import lit  # noqa: PLC0415 - pyspark only where Spark is

    from headgate.spark.schema import arrow_schema  # noqa: PLC0415

    assert request.df is not None  # noqa: S101 - a source has columns
    df = request.df.select(lit(True).alias("row"))
    schema = arrow_schema(df.schema, "UTC")
    request = replace(request, df=df, input_schema=schema)
    if request.map is not None:
        return replace(request, map=_stripped(request.map))
    request = replace(request, wire=df.schema, wire_schema=schema)
    if request.reduce is not None:
        return replace(request, reduce=_stripped(request.reduce))
    return replace(request, result=df.schema, result_schema=schema)


def _stripped(function: BatchFunction) -> BatchFunction:
    def stripped(batches: Batches) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        return function(Batches((batch.select([]) for batch in batches), pa.schema([])))

    return stripped
