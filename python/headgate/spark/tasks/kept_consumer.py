"""The body of a consumer of a kept exchange: read the kept subpartitions, reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headgate as hg
from headgate.partition import KeptSubpartition
from headgate.spark.schema_cast import SchemaCast
from headgate.spark.tasks.kept_files import mark_committed
from headgate.spark.tasks.places import Places
from headgate.spark.tasks.report import report
from headgate.spark.tasks.timing import Clock, yielded
from headgate.spark.tasks.user_function import Source, apply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark import Accumulator

    from headgate.address import ChannelAddress
    from headgate.batches import BatchFunction
    from headgate.options import EnvironmentOptions
    from headgate.spark.tasks.places import Row
    from headgate.spark.tasks.report import TaskReport
    from headgate.spark.tasks.start_host import HostPlan
    from headgate.spark.tasks.user_function import Order
    from headgate.spark.tasks.worker_connection import Place


@dataclass(frozen=True, slots=True)
class KeptInput:
    """One input of a kept exchange, as its consumers read it.

    Attributes:
        exchange: name of the exchange and this input.
        schema: of the batches that were kept.
        driver: where to ask for the host of a producer; None if there are no hosts.
        order: in which reduce gets the rows; None as they come.
    """

    exchange: str
    schema: pa.Schema
    driver: Place | None
    order: Order | None


@dataclass(frozen=True, slots=True)
class KeptConsumerTask:
    """A consumer of a kept exchange.

    Attributes:
        inputs: what it reads.
        num_partitions: partitions of the result.
        options: options of the task's environment.
        reduce: makes the result from an iterator for each input; None where the rows of the only one
            are the result.
        result: schema of the result.
        batch_bytes: pages are joined into batches of up to so many bytes; 0 joins none.
        reports: takes a list of :class:`TaskReport` to the driver; None where Spark cannot.
        hosts: what consumers and the hosts of other executors share; None if there are no hosts.
        most_remote: channels to other hosts that the pool has segments for at a time, for each input.
    """

    inputs: tuple[KeptInput, ...]
    num_partitions: int
    options: EnvironmentOptions
    reduce: BatchFunction | None
    result: pa.Schema
    batch_bytes: int
    reports: Accumulator[Any] | None
    hosts: HostPlan | None
    most_remote: int


def run(task: KeptConsumerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the result for the rows that producers returned; reduce is called once per partition."""
    counts = _Counts()
    for pieces in _Partitions(batches):
        yield from _reduce(task, counts, pieces)
    if task.reports is not None:
        task.reports.add([counts.report(task)])


class _Partitions:
    """The rows of a task by partition. Usually a task has one, whose rows are read as they come.

    Adaptive execution may give a task several. The rows of the others wait in memory then.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._waiting: dict[int, list[list[Row]]] = {}
        #: Partitions whose reduce has ended, maybe before it had read all rows.
        self._done: set[int] = set()

    def __iter__(self) -> Iterator[Iterator[list[Row]]]:
        """Yield the rows of each partition; of a task without rows, one partition without any."""
        self._find()
        if not self._waiting:
            yield iter(())
        while self._waiting:
            number = next(iter(self._waiting))
            yield self._of(number)
            self._done.add(number)
            del self._waiting[number]
            self._find()

    def _of(self, number: int) -> Iterator[list[Row]]:
        while True:
            while self._waiting[number]:
                yield self._waiting[number].pop(0)
            if not self._take():
                return

    def _find(self) -> None:
        """Take batches until one has rows of a partition that is not done."""
        while not self._waiting and self._take():
            pass

    def _take(self) -> bool:
        """Take the rows of one batch; return False at the end."""
        for batch in self._batches:
            found: dict[int, list[Row]] = {}
            for row in batch.to_pylist():
                found.setdefault(row["subpartition"], []).append(row)
            for number in found.keys() - self._done:
                self._waiting.setdefault(number, []).append(found[number])
            return True
        return False


class _Counts:
    """What the task has read so far."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.peak = 0
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def report(self, task: KeptConsumerTask) -> TaskReport:
        """Return the report of this task."""
        return report(
            task.inputs[0].exchange,
            task.num_partitions,
            "reduce",
            rows=self._rows,
            bytes=self._bytes,
            peak_bytes=self.peak,
            times=self.clock.fields(),
        )


def _reduce(
    task: KeptConsumerTask, counts: _Counts, pieces: Iterator[list[Row]]
) -> Iterator[pa.RecordBatch]:
    with _environment(task) as environment:
        sources = [
            Source(
                _read(task, environment, one, rows), one.schema, counts.add, counts.clock, one.order
            )
            for one, rows in zip(task.inputs, _by_input(pieces, len(task.inputs)), strict=True)
        ]
        made = apply("reduce", task.reduce, *sources)
        if task.reduce is not None:
            made = SchemaCast(task.result, "reduce").all(made)
        yield from yielded(made, counts.clock)
        for source in sources:
            if source.error is not None:
                raise source.error  # reduce caught it and went on, so rows are missing
        counts.peak = max(counts.peak, environment.stats().get("peak_bytes", 0))


def _by_input(pieces: Iterator[list[Row]], inputs: int) -> list[Iterator[list[Row]]]:
    """Return the rows of each input. With several inputs all rows are read first, as they are mixed."""
    if inputs == 1:
        return [pieces]
    found: list[list[Row]] = [[] for _ in range(inputs)]
    for some in pieces:
        for row in some:
            found[row["input"]].append(row)
    return [iter([rows]) for rows in found]


def _environment(task: KeptConsumerTask) -> hg.ShuffleEnvironment:
    if task.hosts is None:
        return hg.ShuffleEnvironment(**task.options)
    options: EnvironmentOptions = {**task.options, "same_host_link": "off"}
    return hg.ShuffleEnvironment(
        secret=task.hosts.secret, exchange_id=task.hosts.application, **options
    )


def _read(
    task: KeptConsumerTask,
    environment: hg.ShuffleEnvironment,
    source: KeptInput,
    pieces: Iterator[list[Row]],
) -> Iterator[pa.RecordBatch]:
    places = Places(source.exchange, source.driver)
    for some in pieces:
        for group in _groups(map(places.of, some), task.most_remote):
            gate = environment.create_input_gate(sealed=False, schema=source.schema)
            for one in group:
                if not isinstance(one, KeptSubpartition):
                    gate.add_channel(one)
                    continue
                if one.file is not None:
                    mark_committed(one.file)
                gate.add_kept_channel(one)
            gate.seal()
            yield from hg.RecordReader(gate, schema=source.schema, batch_bytes=task.batch_bytes)
            gate.close()


def _groups(
    found: Iterable[KeptSubpartition | ChannelAddress], most: int
) -> Iterator[list[KeptSubpartition | ChannelAddress]]:
    """Yield what one gate reads at a time: at most so many channels to other hosts."""
    group: list[KeptSubpartition | ChannelAddress] = []
    remote = 0
    for one in found:
        is_remote = not isinstance(one, KeptSubpartition)
        if is_remote and remote == most:
            yield group
            group, remote = [], 0
        group.append(one)
        remote += is_remote
    if group:
        yield group
