"""The body of a consumer of a kept exchange: read the kept subpartitions, reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate._group_size import GroupSize, largest_of
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.combining import combined
from headgate.spark.tasks.kept_reader import KeptReader
from headgate.spark.tasks.neighbours import Neighbours, subpartitions_in
from headgate.spark.tasks.notice import tell_start
from headgate.spark.tasks.report import report, run_of
from headgate.spark.tasks.timing import Clock, yielded
from headgate.spark.tasks.user_function import Source, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import Accumulator

    from headgate.batches import BatchFunction
    from headgate.spark.tasks.kept_locations import KeptLocations, Row
    from headgate.spark.tasks.kept_reader import KeptInput, KeptReading
    from headgate.spark.tasks.notice import Listener
    from headgate.spark.tasks.report import TaskReport


@dataclass(frozen=True, slots=True)
class KeptConsumerTask:
    """A consumer of a kept exchange.

    Attributes:
        inputs: what it reads.
        num_partitions: partitions of the result.
        reading: how it reads.
        reduce: makes the result from an iterator for each input; None where the rows of the only one
            are the result.
        result: schema of the result.
        reports: takes a list of :class:`TaskReport` to the driver; None where Spark cannot.
        listener: hears of tasks that start, for the line of progress; None if there is none.
        advisory_bytes: bytes of rows from which on no further subpartition joins a call of reduce; None if
            a partition is one call.
    """

    inputs: tuple[KeptInput, ...]
    num_partitions: int
    reading: KeptReading
    reduce: BatchFunction | None
    result: pa.Schema
    reports: Accumulator[Any] | None
    listener: Listener | None
    advisory_bytes: int | None = None


def run(task: KeptConsumerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the result for the rows that producers returned; reduce is called once per partition."""
    if task.listener is not None:
        tell_start(task.listener, run_of(task.inputs[0].exchange), task.num_partitions, "reduce")
    counts = Counts()
    if task.advisory_bytes is None:
        for pieces in _Partitions(batches):
            yield from _reduce(task, counts, pieces)
    else:
        yield from _reduce_neighbours(task, counts, batches, task.advisory_bytes)
    if task.reports is not None:
        task.reports.add([counts.report(task.inputs[0].exchange, task.num_partitions)])


def _reduce_neighbours(
    task: KeptConsumerTask, counts: Counts, batches: Iterable[pa.RecordBatch], advisory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the result of a call for each few neighbours; of a task without rows, of one call without any."""
    coming = subpartitions_in(batches, len(task.inputs))
    schemas = [input_.schema for input_ in task.inputs]
    neighbours = Neighbours(coming, schemas, advisory_bytes)
    locations: dict[str, KeptLocations] = {}
    while True:
        pieces = [neighbours.pieces(number) for number in range(len(task.inputs))]
        yield from _called(task, counts, pieces, neighbours.count, locations)
        counts.called(len(neighbours))
        neighbours = Neighbours(coming, schemas, advisory_bytes)
        if not neighbours:
            return


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
            rows: dict[int, list[Row]] = {}
            for row in batch.to_pylist():
                rows.setdefault(row["subpartition"], []).append(row)
            for number in rows.keys() - self._done:
                self._waiting.setdefault(number, []).append(rows[number])
            return True
        return False


class Counts:
    """What the task has read so far."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._peak = 0
        self._disk_ms = 0
        self._link_ms = 0
        self._rows = 0
        self._bytes = 0
        self._calls = 0
        self._subpartitions = 0
        self._largest_group: GroupSize | None = None

    def called(self, subpartitions: int) -> None:
        """Count a call of reduce for so many subpartitions with rows, if there are some."""
        self._calls += subpartitions > 0
        self._subpartitions += subpartitions

    def grouped(self, largest: GroupSize | None) -> None:
        """Count the largest group of a call of reduce."""
        self._largest_group = largest_of([self._largest_group, largest])

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def end(self, reader: KeptReader) -> None:
        """Count the waits and the memory of a reader that has read all."""
        self._peak = max(self._peak, reader.peak_bytes)
        self._disk_ms += reader.disk_ms
        self._link_ms += reader.link_ms

    def report(self, exchange: str, partitions: int) -> TaskReport:
        """Return the report of this task, for the name of its first input."""
        sizes = {"rows": self._rows, "bytes": self._bytes, "peak_bytes": self._peak}
        waits = {"disk_ms": self._disk_ms, "link_ms": self._link_ms}
        figures = {**sizes, **self.clock.fields(), **waits}
        return report(
            exchange,
            partitions,
            "reduce",
            figures,
            calls=self._calls,
            subpartitions=self._subpartitions,
            largest_group=self._largest_group,
        )


def _reduce(
    task: KeptConsumerTask, counts: Counts, pieces: Iterator[list[Row]]
) -> Iterator[pa.RecordBatch]:
    yield from _called(task, counts, _by_input(pieces, len(task.inputs)), lambda *_: None)


def _called(
    task: KeptConsumerTask,
    counts: Counts,
    pieces: list[Iterator[list[Row]]],
    count: Callable[[int, pa.RecordBatch], None],
    locations: dict[str, KeptLocations] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the result of one call of reduce.

    Args:
        task: of the consumer.
        counts: of all its calls.
        pieces: the rows of producers for each input.
        count: gets the number of an input and each batch of it.
        locations: as :class:`KeptReader` takes them.
    """

    def read(number: int) -> Iterator[pa.RecordBatch]:
        for batch in reader.read(task.inputs[number], pieces[number]):
            counts.add(batch)
            count(number, batch)
            yield batch

    def source(number: int) -> Source:
        input_, rows = task.inputs[number], read(number)
        if input_.combine is not None:
            merge, clock = input_.combine, counts.clock
            rows = combined(rows, merge, input_.schema, leaves_few=True, clock=clock)
        return Source(rows, input_.schema, lambda _: None, counts.clock, input_.order)

    with KeptReader(task.reading, locations) as reader:
        sources = list(map(source, range(len(task.inputs))))
        batches = apply("reduce", task.reduce, *sources)
        if task.reduce is not None:
            batches = DdlCast(task.result, "reduce").all(batches)
        yield from yielded(batches, counts.clock)
        counts.end(reader)
    counts.grouped(getattr(task.reduce, "largest_group", None))


def _by_input(pieces: Iterator[list[Row]], inputs: int) -> list[Iterator[list[Row]]]:
    """Return the rows of each input. With several inputs all rows are read first, as they are mixed."""
    if inputs == 1:
        return [pieces]
    by_input: list[list[Row]] = [[] for _ in range(inputs)]
    for piece in pieces:
        for row in piece:
            by_input[row["input"]].append(row)
    return [iter([rows]) for rows in by_input]
