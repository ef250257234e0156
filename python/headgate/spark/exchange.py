"""exchange(): chooses between Headgate and Spark's own shuffle, and plans the chosen one."""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TASK_OPTIONS
from headgate.errors import NotEnoughSlots, WorkerPythonError
from headgate.selectors import PLACED_BY_ORDER
from headgate.spark.request import Request, check
from headgate.spark.source_input import is_table, refuse_for_table, session_of, source_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.source import Source
    from headgate.source.watermark import WatermarkStrategy
    from headgate.spark.driver.slots import Slots
    from headgate.spark.progress.stats import ExchangeStats
    from headgate.spark.tasks.task import ConsumerTask, ProducerTask
    from headgate.spark.tasks.user_function import BatchFunction

#: Seconds that the first executor of a fresh application is waited for.
_NO_EXECUTORS: Final = 1.5


def exchange(
    df: DataFrame | Source[pa.RecordBatch, Any, Any],
    by: str | Iterable[str] | Callable[[pa.RecordBatch], Any] | Any | None = None,
    map: BatchFunction | None = None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None = None,
    schema: StructType | str | None = None,
    num_partitions: int | None = None,
    *,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    watermarks: WatermarkStrategy | None = None,
    **options: Any,
) -> DataFrame:
    """Repartition a DataFrame or a source between Python workers while it is being computed.

    Lazy, and the result is an ordinary DataFrame. Its tasks are resident consumers; when an action
    runs them, the producers run as a Spark job of their own, in waves on the free slots.

    The producers of a source are its readers: each asks the enumerator, which runs on the driver,
    for one split after the other, so that a slow one takes fewer; no row passes through the JVM on
    its way in. Each run has an enumerator of its own and reads everything again. A reader that is
    lost before its first batch is tried again where Spark tries tasks again, and its splits go to
    whoever asks.

    A producer or consumer that is lost, silent or cut off ends the epoch of its run: producers stop,
    consumers that have yielded nothing wait, others fail their tasks, which Spark tries again, and
    then all begin anew, up to ``spark.task.maxFailures`` times. ``map`` and ``reduce`` are called
    anew then, and must give the same rows for the same rows.

    Args:
        df: any DataFrame of a classic session, or a bounded source whose records are batches.
        by: a column or columns, so that each row comes where ``df.repartition(n, *by)`` would put
            it; a selector; a callable that gets a batch and returns the partition of each row;
            or None for one partition after the other, batch by batch.
        map: runs in the producers, from an iterator of record batches to another one. It gets the
            batches of a source as the reader made them.
        reduce: runs in the consumers, once per partition, from the rows of that partition.
        schema: of what ``reduce`` returns, or ``map`` where there is no ``reduce``; by default the
            columns that are sent. Columns are matched by name, and cast where nothing is lost.
        num_partitions: of the result; by default half of the slots, at least 1.
        spark: the session that a source is read in; by default the active one.
        parallelism: how many readers a source has; by default the slots that the consumers leave,
            at least 1. Readers above the free slots run in waves.
        watermarks: the strategy of a source's readers; in a run that ends it matters for the
            alignment of splits only.
        options: ``memory``, ``segment_size``, ``max_record_size``, ``buffer_timeout``,
            ``batch_bytes``, ``compression``, ``same_host_link``, ``spill_threshold``,
            ``temp_directories``, ``on_no_slots``, ``progress``, ``consumer_timeout``,
            ``heartbeat_timeout``, ``map_schema`` and those
            that share out the pool or keep its buffers small, such as ``buffers_per_channel`` and
            ``buffer_debloat_enabled``; see ``docs/options.md``.

    Raises:
        OptionError: an unknown option, or a value that it does not take; a source that never ends
            or has no schema; ``parallelism`` or ``watermarks`` with a DataFrame.
        UnknownColumnError: ``by`` names no column of the rows that are sent.
        UnsupportedTypeError: a column that cannot be sent, or be a key.
        NotEnoughSlots: with ``on_no_slots="error"``, when the consumers and one producer do not
            fit; by default a warning, and the same job through Spark's own shuffle.
        NotBuiltError: the session is a Spark Connect one.
        SourceError: through Spark's own shuffle only, where splits are planned at once: the
            enumerator failed. Otherwise the action raises it.
    """
    given = {**options, "num_partitions": num_partitions, "parallelism": parallelism}
    if not is_table(df):
        session = session_of(spark)
        data = source_input(df, watermarks)
        return _plan(check(data, session, by, map, reduce, schema, given))
    refuse_for_table(df, spark, parallelism, watermarks)
    request = check(df, df.sparkSession, by, map, reduce, schema, given)
    if not df.columns:
        return _without_columns(df, by, map, reduce, schema, num_partitions, options)
    return _plan(request)


def last_stats() -> ExchangeStats | None:
    """Return the statistics of the last run; None before the first one."""
    from headgate.spark.driver import application  # noqa: PLC0415 - not needed by who only imports

    return application.last_stats()


def _plan(request: Request) -> DataFrame:
    from headgate.spark.driver.slots import SlotCounter  # noqa: PLC0415

    counter = SlotCounter(request.context)
    slots, deadline = counter.count(), time.monotonic() + _NO_EXECUTORS
    while slots.number == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
        slots = counter.count()
    partitions = request.options["num_partitions"] or max(1, slots.number // 2)
    if partitions + 1 > max(slots.number, slots.most):
        error = _not_enough(partitions, slots, request)
        if request.options["on_no_slots"] == "error":
            raise error
        from headgate.spark.fallback import shuffle  # noqa: PLC0415

        warnings.warn(error.as_warning(), stacklevel=3)
        return shuffle(request, partitions, slots.number)
    readers = request.options["parallelism"] or slots.number - partitions
    return _pipelined(request, partitions, readers)


def _pipelined(request: Request, partitions: int, readers: int) -> DataFrame:
    from headgate.spark.driver import application  # noqa: PLC0415
    from headgate.spark.driver.formation import ExchangeFacts  # noqa: PLC0415
    from headgate.spark.driver.jobs import Plan  # noqa: PLC0415
    from headgate.spark.tasks.control import Place  # noqa: PLC0415
    from headgate.spark.tasks.producer import RESULT  # noqa: PLC0415
    from headgate.spark.tasks.task import ConsumerTask, ProducerTask  # noqa: PLC0415

    owner = application.of(request.context)
    exchange_id, secret = os.urandom(16), os.urandom(32)
    options = request.options
    common = {
        "place": Place(
            owner.host,
            owner.port,
            exchange_id,
            secret,
            options["consumer_timeout"],
            options["heartbeat_timeout"],
        ),
        "schema": request.wire_schema,
        "num_partitions": partitions,
        "options": {name: options[name] for name in TASK_OPTIONS},
    }

    given = request.source
    source = None if given is None else given.plan(readers)

    def producers(run: int, epoch: int) -> DataFrame:
        task = ProducerTask(
            **common,
            run=run,
            epoch=epoch,
            map=request.map,
            by=request.by,
            source=source,
            map_option=request.map_option,
        )
        df = request.session.range(0, readers, 1, readers) if request.df is None else request.df
        return df.mapInArrow(_produce(task), RESULT)

    name = "" if given is None else f" {given.name}"
    words = f"headgate {exchange_id.hex()[:4]}{name} by={request.by_words} -> {partitions}"
    may_hand_over = options["on_no_slots"] == "shuffle"
    facts = ExchangeFacts(partitions, may_hand_over, options["heartbeat_timeout"])
    by_order = request.by is None or isinstance(request.by, PLACED_BY_ORDER)
    plan = Plan(producers, words, options["progress"], source, by_order)
    owner.register(exchange_id, secret, facts, plan)
    consumers = request.session.range(0, partitions, 1, partitions)
    task = ConsumerTask(
        **common,
        reduce=request.reduce,
        batch_bytes=options["batch_bytes"],
        result=request.result_schema,
    )
    return consumers.mapInArrow(_consume(task), request.result)


def _consume(task: ConsumerTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    run = _portable(task, "headgate.spark.tasks.consumer")

    def consume(batches: Iterator[Any]) -> Iterator[Any]:
        return run(batches)

    return consume


def _produce(task: ProducerTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    run = _portable(task, "headgate.spark.tasks.producer")

    def produce(batches: Iterator[Any]) -> Iterator[Any]:
        return run(batches)

    return produce


def _portable(task: Any, body: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that travels by value and needs headgate only when it is called.

    So a worker whose Python has none can say so, instead of failing to unpickle.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark only where Spark is

    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    missing = WorkerPythonError(
        "the Python that runs the tasks has no headgate", have="{python}: {error}"
    )
    text = str(missing)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib  # noqa: PLC0415 - in the worker
        import pickle  # noqa: PLC0415 - in the worker
        import sys  # noqa: PLC0415 - in the worker

        try:
            module = importlib.import_module(body)
        except ImportError as error:
            raise ImportError(text.format(python=sys.executable, error=error)) from error
        return module.run(pickle.loads(pickled), batches)  # type: ignore[no-any-return]  # noqa: S301 - from the driver's own closure

    return run


def _without_columns(
    df: DataFrame,
    by: Any,
    map_: BatchFunction | None,
    reduce: BatchFunction | None,
    schema: StructType | str | None,
    num_partitions: int | None,
    options: dict[str, Any],
) -> DataFrame:
    """Exchange rows without columns, which Spark hands to Python as no rows at all."""
    from pyspark.sql.functions import lit  # noqa: PLC0415 - pyspark only where Spark is

    carrier = df.select(lit(True).alias("row"))
    if map_ is not None:
        map_ = _stripped(map_)
    elif reduce is not None:
        reduce = _stripped(reduce)
    options = {**options, "num_partitions": num_partitions}
    result = exchange(carrier, by, map_, reduce, schema, **options)
    return result if map_ is not None or reduce is not None else result.select()


def _stripped(function: BatchFunction) -> BatchFunction:
    def stripped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.select([]) for batch in batches)

    return stripped


def _not_enough(partitions: int, slots: Slots, request: Request) -> NotEnoughSlots:
    asked = f"num_partitions={partitions} ({request.options.sources['num_partitions']})"
    remedies = [f"num_partitions={slots.number - 1}"] if slots.number > 1 else []
    remedies.append(f"a master with at least {partitions + 1} slots")
    if request.options["on_no_slots"] == "shuffle":
        remedies.append('on_no_slots="shuffle" is what happens now: Spark\'s own repartition')
    else:
        remedies.append('on_no_slots="shuffle" (Spark\'s own repartition, same result)')
    return NotEnoughSlots(
        f"this exchange needs {partitions + 1} task slots at the same time; "
        f"the cluster has {slots.number}",
        asked=asked,
        have=slots.words,
        remedy=" · ".join(remedies),
        details={"needed": partitions + 1, "slots": slots.number},
    )
