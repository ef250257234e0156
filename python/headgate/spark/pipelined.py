"""The plan of a pipelined exchange: its consumers are the result's tasks, its producers a job of their own.

Decision: ADR 0029.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TASK_OPTIONS
from headgate.errors import NotEnoughSlots
from headgate.selectors import PLACED_BY_ORDER
from headgate.spark.portable import portable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark.driver.scheduler.slots import Slots
    from headgate.spark.request import Request

_PRODUCER: Final = "headgate.spark.tasks.producer"
_CONSUMER: Final = "headgate.spark.tasks.consumer"


@dataclass(frozen=True, slots=True)
class Widths:
    """The numbers of tasks of a pipelined exchange.

    Attributes:
        partitions: consumers.
        readers: producers that read a source.
        holds_slots: True if each consumer holds a slot.
    """

    partitions: int
    readers: int
    holds_slots: bool


def widths(request: Request, slots: Slots) -> Widths:
    """Return the numbers of tasks.

    Args:
        request: the call of exchange().
        slots: of the application. By default half of them get consumers; the others read a source.
            Where consumers take shares of a core, all slots are for producers.

    Raises:
        NotEnoughSlots: The consumers and one producer cannot run at the same time.
    """
    from headgate.spark.driver.scheduler.shares import (  # noqa: PLC0415
        MOST_PER_SLOT,
        are_to_be_had,
    )

    given, readers = request.options["num_partitions"], request.options["parallelism"]
    if are_to_be_had(request.context, request.session.version, slots):
        partitions, most = given or slots.number, MOST_PER_SLOT * slots.number
        if partitions > most:
            needs = f"at least one slot for {MOST_PER_SLOT} partitions, here {partitions}"
            raise _not_enough(
                needs, partitions, most, -(-partitions // MOST_PER_SLOT), slots, request
            )
        return Widths(partitions, readers or slots.number, holds_slots=False)
    partitions = given or max(1, slots.number // 2)
    if partitions + 1 > max(slots.number, slots.most):
        needs = f"a task slot for each partition and one more, here {partitions + 1}"
        raise _not_enough(needs, partitions, slots.number - 1, partitions + 1, slots, request)
    return Widths(partitions, readers or slots.number - partitions, holds_slots=True)


def pipeline(request: Request, wide: Widths, exchange_id: bytes) -> DataFrame:
    """Return the DataFrame of a pipelined exchange.

    Args:
        request: the call of exchange().
        wide: its numbers of tasks.
        exchange_id: 16 random bytes.
    """
    from headgate.spark.driver import application  # noqa: PLC0415
    from headgate.spark.driver.runs.formation import ExchangeFacts  # noqa: PLC0415
    from headgate.spark.driver.scheduler.jobs import Plan  # noqa: PLC0415
    from headgate.spark.progress.facts import facts_of  # noqa: PLC0415
    from headgate.spark.tasks.producer import RESULT  # noqa: PLC0415
    from headgate.spark.tasks.task import ConsumerTask, ProducerTask  # noqa: PLC0415

    owner = application.of(request.context)
    partitions, readers = wide.partitions, wide.readers
    shares = None if wide.holds_slots else owner.shares
    options = request.options
    place = owner.place(exchange_id, options)
    common: dict[str, Any] = {
        "place": place,
        "schema": request.wire_schema,
        "num_partitions": partitions,
        "options": {name: options[name] for name in TASK_OPTIONS},
    }
    given = request.source
    name = "" if given is None else f" {given.name}"
    words = f"headgate {exchange_id.hex()[:4]}{name} by={request.by_words} -> {partitions}"
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
            given=request.given_schema,
        )
        df = request.session.range(0, readers, 1, readers) if request.df is None else request.df
        profile = None if shares is None else shares.for_producers_of(df)
        function = portable(task, _PRODUCER, f"{words}: map")
        return df.mapInArrow(function, RESULT, profile=profile)

    by_order = request.by is None or isinstance(request.by, PLACED_BY_ORDER)
    consumers, rdd = _numbered(request.session, partitions)
    found = {} if source is None else {"parallelism": readers}
    facts = facts_of(options, num_partitions=partitions, **found)
    plan = Plan(producers, words, options["progress"], rdd.id(), facts, source, by_order)
    about = ExchangeFacts(partitions, place.heartbeat_timeout, wide.holds_slots)
    task = ConsumerTask(
        **common,
        reduce=request.reduce,
        batch_bytes=options["batch_bytes"],
        result=request.result_schema,
        order=request.order,
    )
    function = portable(task, _CONSUMER, f"{words}: reduce")
    profile = None if shares is None else shares.consumer
    result = consumers.mapInArrow(function, request.result, profile=profile)
    owner.register(place, about, plan, rdd)
    return result


def _numbered(session: SparkSession, partitions: int) -> tuple[DataFrame, Any]:
    """Return the numbers of the consumers, one in each partition, and the RDD in the JVM that has them.

    Spark tells of each stage which RDDs it computes. So the driver knows which stages are of this
    exchange, whatever is made of the result. A plain range would be another RDD in each action.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only where Spark is

    numbers = session.range(0, partitions, 1, partitions)
    # As Spark's own checkpoint() does it, so that the plan keeps its statistics.
    jdf, jvm = numbers._jdf, session._jvm  # noqa: SLF001
    sql = jvm.org.apache.spark.sql  # type: ignore[union-attr]
    rdd = jdf.queryExecution().toRdd()
    made = getattr(getattr(sql.execution, "LogicalRDD$"), "MODULE$")
    try:
        plan = made.fromDataset(rdd, jdf, False, False)
    except Py4JError:
        plan = made.fromDataset(rdd, jdf, False)  # an older Spark
    result = sql.classic.Dataset.ofRows(session._jsparkSession, plan)  # noqa: SLF001
    return type(numbers)(result, session), rdd


def _not_enough(
    needs: str, partitions: int, most: int, needed: int, slots: Slots, request: Request
) -> NotEnoughSlots:
    """Return the error for more partitions than these slots allow.

    Args:
        needs: the rule, with the number that was asked for.
        partitions: those that were asked for.
        most: partitions that fit.
        needed: slots that the partitions need.
        slots: of the application.
        request: the call of exchange().
    """
    asked = f"num_partitions={partitions} ({request.options.sources['num_partitions']})"
    remedies = [f"num_partitions={most}"] if most else []
    remedies.append(f"a master with at least {needed} slots")
    if request.options["mode"] == "pipelined":
        remedies.insert(0, 'mode="kept"')
    return NotEnoughSlots(
        f"a pipelined exchange needs {needs}; the cluster has {slots.number}",
        asked=asked,
        have=slots.words,
        remedy=" · ".join(remedies),
        details={"needed": needed, "slots": slots.number},
    )
