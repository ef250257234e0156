"""How rows travel in kept exchanges of a session, and what the tasks of one have in common."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TASK_OPTIONS, TLS_OPTIONS
from headgate.selectors import PLACED_BY_ORDER
from headgate.spark.confs import is_connect
from headgate.spark.connect import master_of
from headgate.spark.plan.rules import There, joined_bytes
from headgate.spark.plan.shuffle import keys_of_partitions
from headgate.spark.slots import local_attempts
from headgate.spark.tasks.kept_producer import KeptProducerTask
from headgate.spark.tasks.kept_reader import KeptInput, KeptReading
from headgate.spark.tasks.report import name_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from headgate.batches import BatchFunction
    from headgate.control.place import Place
    from headgate.options import EnvironmentOptions
    from headgate.spark.driver.kept.runs import KeptRuns
    from headgate.spark.plan.request import Request
    from headgate.spark.progress.facts import Facts
    from headgate.spark.tasks.notice import Listener
    from headgate.spark.tasks.planned_source import PlannedSource
    from headgate.spark.tasks.start_host import HostPlan
    from headgate.spark.tasks.user_function import Order

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
class Way:
    """The way of the rows of a kept exchange, and what its tasks have in common.

    Attributes:
        request: of the first input, which has the options of all.
        name: of the exchange, 30 digits in hex.
        partitions: of the result.
        options: of the environments of its tasks.
        keys: for each partition a key that Spark's hash places there; None if Spark takes the number.
        runs: the kept exchanges of the application; None on Spark Connect.
        listener: hears of tasks that start, for the line of progress; None if there is none.
        hosts: what producers need to start hosts, and consumers to read from them; None without hosts.
        words: short words for the way, as steps of the plan have them.
        why: a sentence about it for the log.
        registered: ids of what consumers ask the driver about.
    """

    request: Request
    name: str
    partitions: int
    options: EnvironmentOptions
    keys: tuple[int, ...] | None
    runs: KeptRuns | None
    listener: Listener | None
    hosts: HostPlan | None
    words: str
    why: str
    registered: list[bytes] = field(default_factory=list)

    @property
    def reports(self) -> Accumulator[Any] | None:
        """Takes the reports of tasks to the driver; None where Spark cannot."""
        return None if self.runs is None else self.runs.reports

    def producer(
        self,
        number: int,
        schema: pa.Schema,
        by: Any,
        *,
        input: int | None = None,  # noqa: A002 - as in KeptProducerTask
        given: pa.Schema | None = None,
        map: BatchFunction | None = None,  # noqa: A002 - as in KeptProducerTask
        map_option: str = "schema",
        source: PlannedSource | None = None,
    ) -> KeptProducerTask:
        """Return a task that keeps rows; the arguments are those of :class:`KeptProducerTask`.

        Args:
            number: of what is kept among all that the exchange keeps.
            schema: of the rows.
            by: places them.
            input: the number that the rows of the task have; by default ``number``.
            given: schema of what ``map`` gets.
            map: makes the rows.
            map_option: the option that declares them.
            source: what the task reads.
        """
        session = self.request.session
        inline = is_inline(session)
        is_stable = not inline and not is_one_process(session)
        return KeptProducerTask(
            exchange=name_of(self.name, number),
            input=number if input is None else input,
            given=schema if given is None else given,
            schema=schema,
            num_partitions=self.partitions,
            options=self.options,
            map=map,
            source=source,
            by=by,
            map_option=map_option,
            keys=self.keys,
            is_inline=inline,
            is_stable=is_stable,
            has_digests=is_stable and is_by_order(by),
            reports=self.reports,
            listener=self.listener,
            hosts=self.hosts,
        )

    def input(self, number: int, schema: pa.Schema, order: Order | None = None) -> KeptInput:
        """Return what consumers need to read what a producer of this number keeps."""
        exchange = name_of(self.name, number)
        driver = None if self.hosts is None else self._registered(exchange)
        return KeptInput(exchange, schema, driver, order)

    def reading(self, inputs: int) -> KeptReading:
        """Return how a task reads so many inputs at a time."""
        options = self.request.options
        most = _most_remote(self.request, self.options["segment_size"])
        return KeptReading(
            options=self.options,
            batch_bytes=joined_bytes(options),
            hosts=self.hosts,
            most_remote=max(1, most // inputs),
        )

    def placed(self, rows: DataFrame) -> DataFrame:
        """Return the rows of producers in the partitions that they name."""
        if self.keys is None:
            return rows.repartitionById(self.partitions, rows["place"])
        return rows.repartition(self.partitions, rows["place"])

    def lives_with(self, result: DataFrame) -> DataFrame:
        """Return the result of the exchange, which the driver forgets once its plan is garbage."""
        if self.listener is not None or self.registered:
            from headgate.spark.driver import application, kept_watch  # noqa: PLC0415
            from headgate.spark.driver.lifetimes import function_of  # noqa: PLC0415

            session, part = self.request.session, function_of(result)
            if self.listener is not None:
                kept_watch.live_with(session, self.name, part)
            if self.registered:
                application.of(session.sparkContext).live_with(part, self.registered)
        return result

    def _registered(self, exchange: str) -> Place:
        """Register a name with the driver; return where consumers ask for the hosts of its producers."""
        from headgate.spark.driver import application  # noqa: PLC0415 - not on Spark Connect
        from headgate.spark.driver.kept.places import PlacesOfExchange  # noqa: PLC0415

        runs = self.runs
        assert runs is not None  # noqa: S101 - there are hosts only where the driver hears of tasks
        owner = application.of(self.request.context)
        place = owner.place(bytes.fromhex(exchange), self.request.options)
        owner.register(place, PlacesOfExchange(runs.places, exchange))
        self.registered.append(place.exchange_id)
        return place


def way_of(
    request: Request,
    partitions: int,
    *,
    by_hash: bool,
    has_progress: bool = True,
    name: str | None = None,
) -> Way:
    """Return the way for a new exchange.

    Args:
        request: of its first input.
        partitions: of its result.
        by_hash: True if Spark has to place the rows of producers by its hash.
        has_progress: False if there is no line of progress, whatever the option says.
        name: of the exchange, 30 digits in hex; by default a random one.
    """
    session = request.session
    there = There(on_connect=is_connect(session), shares_files=shares_files(session))
    runs = None if there.on_connect else _runs(session)
    name = os.urandom(15).hex() if name is None else name
    taken = task_options(request, partitions)
    if runs is not None:
        runs.know(name, _facts(request, partitions, taken))
    return Way(
        request=request,
        name=name,
        partitions=partitions,
        options=taken,
        keys=tuple(keys_of_partitions(partitions)) if by_hash else None,
        runs=runs,
        listener=_listener(request, name) if has_progress and runs is not None else None,
        hosts=None if there.shares_files or runs is None else _hosts(request),
        words=there.through,
        why=_WHY[there.through],
    )


def is_by_order(by: Any) -> bool:
    """Return True if the place of a row may depend on the rows before it."""
    return by is None or isinstance(by, PLACED_BY_ORDER) or callable(by)


def is_one_process(session: SparkSession) -> bool:
    """Return True if all tasks run in the driver's JVM, so no executor can be lost."""
    return local_attempts(master_of(session)) is not None


def shares_files(session: SparkSession) -> bool:
    """Return True if all executors are sure to be on one host, where consumers map the files of producers."""
    return master_of(session).startswith("local")


def is_inline(session: SparkSession) -> bool:
    """Return True if consumers may be where they can neither map files nor ask the driver for hosts."""
    return is_connect(session) and not shares_files(session)


def _runs(session: SparkSession) -> KeptRuns:
    from headgate.spark.driver.kept_watch import runs_of  # noqa: PLC0415 - not on Spark Connect

    return runs_of(session)


def _listener(request: Request, exchange: str) -> Listener | None:
    from headgate.spark.driver.kept_watch import listener_of  # noqa: PLC0415 - not on Spark Connect

    options = request.options
    return listener_of(request.session, exchange, options["progress"], tls=options["tls"])


def _hosts(request: Request) -> HostPlan:
    """Return what producers need to start hosts, and consumers to read from them."""
    from headgate.spark.driver import application  # noqa: PLC0415 - not on Spark Connect
    from headgate.spark.tasks.start_host import HostPlan  # noqa: PLC0415

    owner = application.of(request.context)
    tls = {name: request.options[name] for name in TLS_OPTIONS}
    owner.agree_on_tls(tls)
    return HostPlan(owner.data_id, owner.data_secret, owner.host, tls)


def _facts(request: Request, partitions: int, taken: EnvironmentOptions) -> Facts:
    from headgate.spark.progress.facts import facts_of  # noqa: PLC0415 - not on Spark Connect

    segment_size = taken["segment_size"]
    return facts_of(request.options, num_partitions=partitions, segment_size=segment_size)


def task_options(request: Request, partitions: int) -> EnvironmentOptions:
    """Return the options of the tasks, with segments so small that each partition has two."""
    options: EnvironmentOptions = {name: request.options[name] for name in TASK_OPTIONS}  # type: ignore[assignment]
    each: int = request.options["memory"] // (2 * (partitions + 4))
    fitting = 1 << max(12, each.bit_length() - 1)
    options["segment_size"] = min(request.options["segment_size"], fitting)
    return options


def _most_remote(request: Request, segment_size: Any) -> int:
    """Return the number of channels to other hosts for which half of a task's pool has segments."""
    options = request.options
    left = options["memory"] // segment_size // 2 - options["floating_buffers_per_gate"]
    return max(1, int(left // max(1, options["buffers_per_channel"])))
