"""The body of a task of one round of an iteration: update the state, keep it, send messages.

The task of partition r reads the state that the task r of the round before kept, the messages that all
tasks of that round sent to r, and the links of r, which were placed once. It keeps the new state under a
name of its own, so a task that runs again finds its input unchanged.

Decision: ADR 0028.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate._directories import local_directories
from headgate.errors import InternalError, SchemaMismatchError
from headgate.partition import KeptSubpartition
from headgate.schema_cast import same_on_the_wire
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.identity import this_task
from headgate.spark.tasks.kept_consumer import Counts
from headgate.spark.tasks.kept_lifetime import discard, sweep
from headgate.spark.tasks.kept_locations import KeptLocations
from headgate.spark.tasks.kept_output import KeptPartition
from headgate.spark.tasks.kept_producer import keep, keep_copy, rows_of
from headgate.spark.tasks.kept_reader import KeptReader
from headgate.spark.tasks.timing import Clock, yielded
from headgate.spark.tasks.user_function import Source, apply
from headgate.writer import WriterStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark import Accumulator

    from headgate.batches import BatchFunction
    from headgate.spark.tasks.identity import Identity
    from headgate.spark.tasks.kept_locations import Row
    from headgate.spark.tasks.kept_producer import KeptProducerTask
    from headgate.spark.tasks.kept_reader import KeptInput, KeptReading

#: Numbers of the inputs of a round, in the rows of their producers.
STATE: Final = 0
LINKS: Final = 1
MESSAGES: Final = 2
#: The rows that changed before the first round, which has no messages.
CHANGED: Final = MESSAGES
#: The number in the row by which each task tells the task of the next round that it has all its rows.
_MARK: Final = 3
#: Longest time, in seconds, that ``send`` may take after the state was kept.
_SENDING: Final = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class IterateRoundTask:
    """A task of a round; or of the end, which has no ``sent`` and returns the state as its result.

    Attributes:
        state: what the round before kept, or the first state.
        links: what was placed once; None if there are none, or for the end.
        messages: what the round before sent; None in the first round, which does not update the state.
        update: makes the new state of the state and the messages.
        send: makes messages of the state, and of the links if the iteration has some.
        key: the key column if ``update`` returns only the rows that changed, and ``send`` gets only
            these; None if both are about all rows.
        changed: the rows that the first ``send`` gets, if a part of the rounds has run already; else None.
        has_flag: True if the result says in a last column which rows the last round changed.
        state_output: keeps the new state, which has one subpartition; None in the first round and at the end.
        message_output: keeps the messages; None at the end.
        result: schema of the result.
        partitions: of the result.
        reading: how the task reads.
        reports: takes a list of reports to the driver; None where Spark cannot.
    """

    state: KeptInput
    links: KeptInput | None
    messages: KeptInput | None
    update: BatchFunction
    send: BatchFunction
    key: str | None
    changed: KeptInput | None
    has_flag: bool
    state_output: KeptProducerTask | None
    message_output: KeptProducerTask | None
    result: pa.Schema
    partitions: int
    reading: KeptReading
    reports: Accumulator[Any] | None


def run(task: IterateRoundTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each partition with messages, for the state and for the end; or the result."""
    sweep(local_directories())
    rows = _by_input(task, batches)
    with KeptReader(task.reading) as reader:
        round_ = _Round(task, reader, rows)
        messages = task.message_output
        yield from round_.result() if messages is None else round_.rows(messages)


def _by_input(task: IterateRoundTask, batches: Iterable[pa.RecordBatch]) -> list[list[Row]]:
    """Return the rows of producers by input.

    Raises:
        InternalError: they are not all rows of one partition.
    """
    by_input: list[list[Row]] = [[] for _ in range(_MARK + 1)]
    for batch in batches:
        for row in batch.to_pylist():
            by_input[row["input"]].append(row)
    is_first = task.messages is None
    # The state of a later round is in the only subpartition of its task.
    shuffled = by_input if is_first else by_input[LINKS:]
    numbers = {row["subpartition"] for rows in shuffled for row in rows}
    if is_first:
        is_whole = numbers <= {this_task().partition}
    else:
        is_whole = len(numbers) == 1 and len(by_input[_MARK]) == 1 if any(by_input) else True
    if not is_whole:
        raise InternalError(
            "Spark gave a task of an iteration the rows of other partitions than its own",
            asked=f"the inputs of one partition, {task.partitions} partitions",
            have=f"partitions {sorted(numbers)}, {len(by_input[_MARK])} of them whole",
            remedy='spark.conf.set("spark.sql.unionOutputPartitioning", True) · num_partitions=1',
        )
    return by_input


class _Round:
    """One round of one partition.

    Args:
        task: what to do.
        reader: reads the inputs.
        found: the rows of producers by input.
    """

    def __init__(self, task: IterateRoundTask, reader: KeptReader, rows: list[list[Row]]) -> None:
        self._task = task
        self._reader = reader
        self._rows = rows
        self._counts = Counts()
        #: The rows that ``update`` returned, if only those that changed are asked for.
        self._changed: list[pa.RecordBatch] = []

    def result(self) -> Iterator[pa.RecordBatch]:
        """Yield the state after the last round."""
        task, counts = self._task, self._counts
        rows = self._flagged() if task.has_flag else self._state()
        yield from yielded(DdlCast(task.result, "update", "").all(rows), counts.clock)
        counts.end(self._reader)
        if task.reports is not None:
            # With a flag the driver sees itself if something changed.
            changed = 0 if task.has_flag else sum(batch.num_rows for batch in self._changed)
            task_report = counts.report(task.state.exchange, task.partitions)
            task.reports.add([replace(task_report, changed=changed)])

    def rows(self, sent: KeptProducerTask) -> Iterator[pa.RecordBatch]:
        """Keep the new state and the messages; yield the rows that say where they are."""
        task, me = self._task, this_task()
        state = None if task.state_output is None else self._keep(task.state_output, me)
        yield self._mark(sent, me)
        if task.state_output is not None and state is not None and state.subpartitions:
            yield rows_of(_here(task.state_output, me), me.partition, state)
        if task.key is not None and state is not None and not self._changed:
            return
        if task.changed is not None and not self._rows[CHANGED]:
            return
        clock = Clock()
        try:
            partition = keep(sent, me, self._messages(self._sources_of_send(state, clock)), clock)
        except BaseException:
            if task.state_output is not None:
                discard(task.state_output.exchange, me.partition, me.attempt)
            raise
        if partition.subpartitions:
            yield rows_of(sent, me.partition, partition)

    def _mark(self, sent: KeptProducerTask, me: Identity) -> pa.RecordBatch:
        """Return the row by which the next round knows that it has all rows of this partition."""
        mark = KeptPartition(
            [KeptSubpartition(me.partition, 0, None, b"")], [0], WriterStats(0, 0, 0), 0
        )
        return rows_of(replace(sent, input=_MARK, has_digests=False), me.partition, mark)

    def _keep(self, task: KeptProducerTask, me: Identity) -> KeptPartition:
        """Keep the new state."""
        new_state, rows = self._state(), self._rows[STATE]
        if self._task.key is None or self._changed or len(rows) != 1:
            return keep(task, me, new_state, self._counts.clock, ahead=_SENDING)
        location = KeptLocations(self._task.state.exchange, self._task.state.driver).of(rows[0])
        # The first state shares its files with other partitions, each a subpartition.
        if isinstance(location, KeptSubpartition) and location.subpartition == 0:
            return keep_copy(task, me, location, rows[0]["rows"], self._counts.clock)
        return keep(task, me, new_state, self._counts.clock)

    def _state(self) -> Iterator[pa.RecordBatch]:
        """Return the new state. If ``update`` returns changes, it is called at once."""
        task = self._task
        if task.key is None:
            return self._updated()
        if self._rows[MESSAGES]:
            self._changed = self._all_updated()
        rows = self._source(task.state, STATE)
        return self._merged(rows, task.key) if self._changed else rows

    def _flagged(self) -> Iterator[pa.RecordBatch]:
        """Yield the new state with a column that is true for the rows that changed."""
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        schema = self._task.result
        for batch in self._state():
            is_changed = any(batch is changed for changed in self._changed)
            flag = pa.repeat(pa.scalar(value=is_changed), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, flag], names=schema.names)

    def _updated(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task.messages is not None  # noqa: S101 - the first round does not update
        sources = [self._source(task.state, STATE), self._source(task.messages, MESSAGES)]
        accepts = None if task.key is not None else same_on_the_wire
        batches = apply("update", task.update, *sources)
        yield from DdlCast(task.state.schema, "update", "", accepts).all(batches)

    def _all_updated(self) -> list[pa.RecordBatch]:
        """Return what ``update`` returns, with the schema of the state."""
        import pyarrow as pa  # noqa: PLC0415 - only workers need it

        # Casts fields that may have nulls, or another name for a time zone, batch by batch.
        tables = (pa.Table.from_batches([batch]) for batch in self._updated() if batch.num_rows)
        schema = self._task.state.schema
        changed = [batch for table in tables for batch in table.cast(schema).to_batches()]
        assert self._task.key is not None  # noqa: S101 - without a key all rows are returned
        _check_once(changed, self._task.key)
        return changed

    def _merged(self, state: Iterator[pa.RecordBatch], key: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the state whose key did not change, then those that did."""
        import pyarrow as pa  # noqa: PLC0415 - only workers need it
        import pyarrow.compute as pc  # noqa: PLC0415

        keys = pa.chunked_array([batch.column(key) for batch in self._changed]).combine_chunks()
        for batch in state:
            unchanged = batch.filter(pc.invert(pc.is_in(batch.column(key), value_set=keys)))
            if unchanged.num_rows:
                yield unchanged
        yield from self._changed

    def _sources_of_send(self, state: KeptPartition | None, clock: Clock) -> list[Source]:
        task = self._task
        schema = task.state.schema
        if state is None:
            input_, number = task.changed or task.state, STATE if task.changed is None else CHANGED
            rows = self._reader.read(input_, [self._rows[number]])
        elif task.key is not None:
            rows = iter(self._changed)
        else:
            rows = self._reader.read_kept(state.subpartitions, schema)
        # Nothing is counted: the rows were counted when they were read.
        sources = [Source(rows, schema, lambda _: None, clock)]
        return sources if task.links is None else [*sources, self._source(task.links, LINKS, clock)]

    def _messages(self, sources: list[Source]) -> Iterator[pa.RecordBatch]:
        """Yield the messages."""
        sent = self._task.message_output
        assert sent is not None  # noqa: S101 - the end sends none
        batches = apply("send", self._task.send, *sources)
        yield from DdlCast(sent.schema, "send", "message_schema", same_on_the_wire).all(batches)

    def _source(self, input_: KeptInput, number: int, clock: Clock | None = None) -> Source:
        rows = self._reader.read(input_, [self._rows[number]])
        counts = self._counts
        return Source(rows, input_.schema, counts.add, clock or counts.clock, input_.order)


def _check_once(changed: list[pa.RecordBatch], key: str) -> None:
    """Refuse rows of which two have one key: both would be in the state from then on.

    Raises:
        SchemaMismatchError: a key is there twice.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - only workers need it
    from pyarrow import Table  # noqa: PLC0415

    if not changed:
        return
    keys = Table.from_batches(changed).column(key)
    if pc.count_distinct(keys, mode="all").as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    value, times = twice[0].as_py().values()
    raise SchemaMismatchError(
        f"update returned {times} rows with {key}={value!r}, and {len(twice)} keys more than once",
        asked="delta=True, one row for each key that changed",
        remedy=f'choose or sum the rows of a key: rows.group_by("{key}").aggregate([...])',
    )


def _here(task: KeptProducerTask, me: Identity) -> KeptProducerTask:
    """Return a task whose only subpartition goes to the partition of this task in the next round."""
    assert task.keys is not None  # noqa: S101 - rounds are placed by Spark's hash
    return replace(task, keys=(task.keys[me.partition],))
