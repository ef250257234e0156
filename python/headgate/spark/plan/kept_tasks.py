"""The tasks of a kept exchange, and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TLS_OPTIONS
from headgate.spark.plan.facts import placement
from headgate.spark.plan.rules import joined_bytes
from headgate.spark.plan.shuffle import keys_of_partitions
from headgate.spark.tasks.kept_producer import KeptProducerTask
from headgate.spark.tasks.kept_reader import KeptInput, KeptReading
from headgate.spark.tasks.report import name_of

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark.driver.kept.runs import KeptRuns
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan
    from headgate.spark.tasks.notice import Listener
    from headgate.spark.tasks.start_host import HostPlan

#: How consumers get the pages -> a sentence about it.
_WHY: Final = {
    "files": "all executors are on one host, so consumers map the files of producers",
    "hosts": (
        "consumers map the files of producers on their own host, and get the others from a process "
        "beside each executor"
    ),
    "Spark's shuffle": (
        "executors may be on several hosts, and the driver of a Spark Connect session cannot tell "
        "which, so all pages travel through Spark's shuffle, which is slower"
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class KeptTasks:
    """What the tasks of a kept exchange have in common.

    Attributes:
        plan: of the exchange.
        spark: its session.
        keys: for each partition a key that Spark's hash places there; None if Spark takes the number.
        runs: the kept exchanges of the application; None on Spark Connect.
        listener: hears of tasks that start, for the line of progress; None if there is none.
        hosts: what producers need to start hosts, and consumers to read from them; None without hosts.
        registered: ids of what consumers ask the driver about.
    """

    plan: Plan
    spark: SparkSession
    keys: tuple[int, ...] | None
    runs: KeptRuns | None
    listener: Listener | None
    hosts: HostPlan | None
    registered: list[bytes] = field(default_factory=list)

    @property
    def why(self) -> str:
        """A sentence for the log about how consumers get the pages."""
        return _WHY[self.plan.session.through]

    @property
    def reports(self) -> Accumulator[Any] | None:
        """Takes the reports of tasks to the driver; None where Spark cannot."""
        return None if self.runs is None else self.runs.reports

    def producer(
        self,
        number: int,
        request: Request,
        *,
        input: int | None = None,  # noqa: A002 - as in KeptProducerTask
    ) -> KeptProducerTask:
        """Return a task that keeps the rows of a request.

        Args:
            number: of what is kept among all that the exchange keeps.
            request: how the rows are made and placed.
            input: the number that the rows of the task have; by default ``number``.
        """
        session = self.plan.session
        is_stable = not session.is_inline and not session.is_one_process
        return KeptProducerTask(
            exchange=name_of(self.plan.name, number),
            input=number if input is None else input,
            input_schema=request.input_schema,
            schema=request.wire_schema,
            num_partitions=self.plan.partitions,
            subpartitions_each=self.plan.subpartitions_each,
            options=self.plan.task_options,
            map=request.map,
            combine=request.combine,
            source=request.planned,
            follows=request.chain is not None,
            by=request.by,
            map_option=request.map_option,
            keys=self.keys,
            is_inline=session.is_inline,
            is_stable=is_stable,
            has_digests=is_stable and placement(request.by).is_by_order,
            reports=self.reports,
            listener=self.listener,
            hosts=self.hosts,
        )

    def input(self, number: int, request: Request) -> KeptInput:
        """Return what consumers need to read what a producer of this number keeps of a request's rows."""
        exchange = name_of(self.plan.name, number)
        driver = None
        if self.hosts is not None and self.runs is not None:
            from headgate.spark.driver import application  # noqa: PLC0415 - not on Spark Connect

            owner = application.of(self.spark.sparkContext)
            driver = owner.register(exchange, self.runs.hosts, self.plan.call.options)
            self.registered.append(driver.exchange_id)
        return KeptInput(exchange, request.wire_schema, driver, request.order, request.combine)

    def reading(self, inputs: int) -> KeptReading:
        """Return how a task reads so many inputs at a time."""
        options, task_options = self.plan.call.options, self.plan.task_options
        # Channels to other hosts for which half of a task's pool has segments.
        segments = options["memory"] // task_options["segment_size"] // 2
        left = segments - options["floating_buffers_per_gate"]
        most = max(1, left // max(1, options["buffers_per_channel"]))
        return KeptReading(
            options=task_options,
            batch_bytes=joined_bytes(options),
            hosts=self.hosts,
            most_remote=max(1, most // inputs),
        )

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Return the rows of producers in the partitions that they name."""
        partitions, key = self.plan.partitions, rows["key"]
        if self.keys is None:
            rows = rows.repartitionById(partitions, key)
        else:
            rows = rows.repartition(partitions, key)
        return rows if self.plan.call.auto is None else rows.sortWithinPartitions("subpartition")

    def live_with(self, functions: DataFrame) -> None:
        """Let the driver forget the exchange once a part of its plan is garbage.

        Args:
            functions: that part, which ``mapInArrow`` has returned.
        """
        if self.listener is not None or self.registered:
            from headgate.spark.driver import application, kept_watch  # noqa: PLC0415
            from headgate.spark.driver.plan_lifetimes import function_of  # noqa: PLC0415

            part = function_of(functions)
            if self.listener is not None:
                kept_watch.live_with(self.spark, self.plan.name, part)
            if self.registered:
                application.of(self.spark.sparkContext).live_with(part, self.registered)


def kept_tasks(
    plan: Plan,
    spark: SparkSession,
    *,
    by_hash: bool,
    has_progress: bool = True,
    iteration: str = "",
) -> KeptTasks:
    """Return what the tasks of a new exchange have in common.

    Args:
        plan: of the exchange.
        spark: its session.
        by_hash: True if Spark has to place the rows of producers by its hash.
        has_progress: False if there is no line of progress, whatever the option says.
        iteration: name of the iteration of whose run the exchange is a part, if it is one.
    """
    options, runs, listener, hosts = plan.call.options, None, None, None
    if not plan.session.on_connect:
        from headgate.spark.driver.kept_watch import listener_of, runs_of  # noqa: PLC0415
        from headgate.spark.progress.settings import settings_of  # noqa: PLC0415 - not on Spark Connect

        runs = runs_of(spark)
        segment_size = plan.task_options["segment_size"]
        number = plan.partitions if plan.call.auto is None else "auto"
        settings = settings_of(options, num_partitions=number, segment_size=segment_size)
        runs.add_settings(plan.name, settings, iteration)
        if has_progress:
            listener = listener_of(spark, plan.name, options["progress"], tls=options["tls"])
        if not plan.session.shares_files:
            from headgate.spark.driver import application  # noqa: PLC0415 - has a server
            from headgate.spark.tasks.start_host import HostPlan  # noqa: PLC0415

            owner = application.of(spark.sparkContext)
            tls = {name: options[name] for name in TLS_OPTIONS}
            owner.agree_on_tls(tls)
            hosts = HostPlan(owner.data_id, owner.data_secret, owner.host, tls)
    keys = tuple(keys_of_partitions(plan.partitions)) if by_hash else None
    return KeptTasks(plan, spark, keys, runs, listener, hosts)
