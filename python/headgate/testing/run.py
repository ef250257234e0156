"""An exchange in this process: its producers and consumers one after the other, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headgate._arguments import (
    arrow_schema,
    calls,
    check_fields,
    flag,
    function,
    instance,
    names,
    refuse,
    takes,
    whole_number,
)
from headgate._kinds import kind_of
from headgate._matches import close_matches
from headgate.batches import Batches, batches_of, returned
from headgate.errors import OptionError, UnknownColumnError
from headgate.functions.sorting import sort_batches
from headgate.schema_cast import ExactCast
from headgate.selectors import BuiltIn, GlobalSelector
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.source_schema import plain_type
from headgate.spark.tasks.selector import selector_of
from headgate.testing.placing import placed, whole

if TYPE_CHECKING:
    from headgate.batches import BatchFunction, Rows

#: Bytes that rows may have in memory while they are sorted.
_SORT_MEMORY = 64 << 20
#: Most producers, and batches of a partition, of a random cut.
_PRODUCERS, _BATCHES = 4, 5
#: More than the calls of combine for the rows of a producer.
_COMBINES = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """How the rows are cut. The default is one producer and one batch for each call of a function.

    Attributes:
        seed: of all choices.
        producers: True if the rows of the input are divided among producers, some of which may have none.
        map_batches: True if ``map`` gets its rows in batches of any size, also of none.
        reduce_batches: the same of ``reduce``.
        combine: True if ``combine`` is called with some parts of the rows, and with what it returned; else it is not called.
        order: True if ``reduce`` gets the batches of different producers in any order.
        num_partitions: number of consumers.
        broadcast: True if inputs with ``broadcast="auto"`` are sent whole.
        again: True if each function is called once before, and left when it has returned something.
    """

    seed: int = 0
    producers: bool = False
    map_batches: bool = False
    reduce_batches: bool = False
    combine: bool = False
    order: bool = False
    num_partitions: int = 2
    broadcast: bool = False
    again: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        whole_number("seed", self.seed, 0)
        whole_number("num_partitions", self.num_partitions, 1, 8000)
        for option in fields(self):
            if isinstance(option.default, bool):
                flag(option.name, getattr(self, option.name))

    def __repr__(self) -> str:
        """Return the call that makes it, with what is not the default."""
        values = ((option, getattr(self, option.name)) for option in fields(self))
        changed = (f"{option.name}={value}" for option, value in values if value != option.default)
        return f"Cut({', '.join(changed)})"


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One of several inputs; see :class:`headgate.spark.Input`.

    Args:
        rows: a table, a DataFrame of polars or pandas, or a list of batches.
        by: which partition each row goes to; by default as the call says.
        map: makes the rows of this input.
        map_schema: the columns that ``map`` returns; by default those of the rows.
        sort_within: the columns by which ``reduce`` gets the rows sorted; by default as the call says.
        combine: merges rows of this input.
        broadcast: True if each call of ``reduce`` gets all rows; ``"auto"`` if a cut says so.
    """

    rows: Rows | Iterable[Rows]
    by: Any = None
    map: BatchFunction | None = None
    map_schema: pa.Schema | None = None
    sort_within: str | Iterable[str] | None = None
    combine: BatchFunction | None = None
    broadcast: bool | Literal["auto"] = False

    def __post_init__(self) -> None:
        """Check the fields but the rows."""
        check_fields(
            self,
            by=_check_by,
            map=calls(1, "def map(batches): ..."),
            map_schema=arrow_schema,
            sort_within=names,
            combine=calls(1, "def combine(batches): ..."),
            broadcast=_check_broadcast,
        )


@dataclass(slots=True)
class Trace:
    """The course of one run, for the text of an error."""

    #: Name of a function's input, a producer or a partition -> the rows of each batch that it got.
    batches: dict[str, list[list[int]]] = field(default_factory=dict)


@takes(cut=instance("a Cut", Cut))
def run(
    rows: Rows | Iterable[Rows] | Sequence[Input],
    by: Any = None,
    map: BatchFunction | None = None,  # noqa: A002 - named as in exchange()
    reduce: BatchFunction | None = None,
    schema: pa.Schema | None = None,
    *,
    combine: BatchFunction | None = None,
    map_schema: pa.Schema | None = None,
    sort_within: str | Iterable[str] | None = None,
    cut: Cut | None = None,
) -> pa.Table:
    """Return what :func:`headgate.spark.exchange` would for these rows; partition by partition.

    Args:
        rows: a table, a DataFrame of polars or pandas, or a list of batches; a list of :class:`Input` for
            several inputs.
        by: names of columns, a selector, a function from a batch to partition numbers, or None.
        map: as in ``exchange()``, like the following.
        reduce: called once per partition.
        schema: the columns of the result; they are cast to it. Without it they stay as they are returned.
        combine: merges rows before they are sent.
        map_schema: the columns that ``map`` returns; by default those of the rows.
        sort_within: names of columns by which ``reduce`` gets the rows of a partition sorted.
        cut: how the rows are cut.

    Without the native module all rows of a key are in one partition too, but it may be another one.

    Raises:
        OptionError: an argument has a value that it does not take.
        SchemaMismatchError: a function returned other columns than its schema has.
        Exception: what a function raised.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.testing import run
        >>> clicks = pa.table({"user": ["ann", "bob", "ann"], "n": [1, 2, 3]})
        >>> def totals(batches):
        ...     table = batches.read_all().group_by("user").aggregate([("n", "sum")])
        ...     return table.sort_by("user")
        >>> run(clicks, by="user", reduce=totals).sort_by("user").to_pylist()
        [{'user': 'ann', 'n_sum': 4}, {'user': 'bob', 'n_sum': 2}]
    """
    inputs = inputs_of(rows, by, map, map_schema, sort_within, combine)
    check_result(inputs, reduce, schema)
    return run_inputs(inputs, reduce, schema, Cut() if cut is None else cut, Trace())


def inputs_of(
    rows: Any,
    by: Any,
    map_: BatchFunction | None,
    map_schema: Any,
    sort_within: Any,
    combine: BatchFunction | None,
) -> list[Input]:
    """Return the inputs of a call, with tables as their rows."""
    is_several = isinstance(rows, (list, tuple)) and any(
        isinstance(source, Input) for source in rows
    )
    if is_several and any(part is not None for part in (map_, map_schema, combine)):
        raise OptionError("with several inputs, map, map_schema and combine belong to an input")
    if is_several:
        Input((), by, sort_within=sort_within)
    inputs = []
    for source in rows if is_several else [Input(rows, by, map_, map_schema, sort_within, combine)]:
        order = sort_within if source.sort_within is None else source.sort_within
        names = [order] if isinstance(order, str) else list(order or ())
        key = by if source.by is None else source.by
        inputs.append(replace(source, rows=_table(source.rows), by=key, sort_within=names))
    if sum(source.broadcast is False for source in inputs) not in {1, len(inputs)}:
        raise OptionError(
            "beside inputs that are broadcast there is one other, whose rows stay in their partitions",
            remedy="broadcast for all inputs but one",
        )
    return inputs


def check_result(inputs: Sequence[Input], reduce: Any, schema: Any) -> None:
    """Check the function and the schema of the result.

    Raises:
        OptionError: one of them is none, or is missing.
    """
    if schema is not None:
        arrow_schema("schema", schema)
    if reduce is not None:
        function(
            "reduce",
            reduce,
            len(inputs),
            "def reduce(batches): ..., with an argument for each input",
        )
    elif len(inputs) > 1:
        raise OptionError(
            "several inputs need reduce", remedy="reduce=f, with a parameter for each"
        )
    elif inputs[0].combine is not None:
        raise OptionError(
            "combine needs reduce, which merges what combine returned for parts of a partition",
            remedy="reduce=f, which may be the same function · omit combine",
        )
    elif inputs[0].map_schema is not None:
        raise OptionError(
            "map_schema is for the rows between map and reduce, and there is no reduce",
            remedy="schema= in its place: the columns that map returns are those of the result",
        )


def run_inputs(
    inputs: Sequence[Input], reduce: BatchFunction | None, schema: Any, cut: Cut, trace: Trace
) -> pa.Table:
    """Return the result for one cut."""
    random = Random(cut.seed)  # noqa: S311 - a test repeats it
    option = "map_schema"
    if reduce is None:
        # The only function makes the columns of the result.
        inputs, option = [replace(source, map_schema=schema) for source in inputs], "schema"
    is_broadcast = any(
        source.broadcast is True or (source.broadcast and cut.broadcast) for source in inputs
    )
    pieces = [
        _produced(source, number, cut, random, trace, option, stays=is_broadcast)
        for number, source in enumerate(inputs)
    ]
    if is_broadcast:
        producers = next(
            len(pieces[n][1]) for n, source in enumerate(inputs) if not source.broadcast
        )
        pieces = [
            (wire, parts * producers if source.broadcast else parts)
            for source, (wire, parts) in zip(inputs, pieces, strict=True)
        ]
    results: list[pa.RecordBatch] = []
    kind: pa.Schema | None = schema
    for partition in range(len(pieces[0][1])):
        received = [
            _in_order(wire, parts[partition], source.sort_within, cut, random)
            for source, (wire, parts) in zip(inputs, pieces, strict=True)
        ]
        for number, (_, batches) in enumerate(received if reduce is not None else ()):
            _note(trace, f"reduce, input {number}" if len(inputs) > 1 else "reduce", batches)
        reduced = _called("reduce", reduce, received, cut)
        if schema is not None:
            reduced = list(DdlCast(schema, "reduce").all(iter(reduced)))
        kind = reduced[0].schema if reduced and kind is None else kind
        results += reduced
    if kind is None:
        kind = pieces[0][0] if reduce is None else pa.schema([])
    return pa.Table.from_batches(results, kind)


def _produced(
    source: Input,
    number: int,
    cut: Cut,
    random: Random,
    trace: Trace,
    option: str,
    *,
    stays: bool,
) -> tuple[pa.Schema, list[list[list[pa.RecordBatch]]]]:
    """Return the schema of the rows that are sent, and for each partition the batches of each producer.

    If ``stays``, the rows of an input that is not broadcast stay with their producers, each of which is a partition
    if it has rows; those of the others are all in one.
    """
    stays, is_whole = stays and not source.broadcast, stays and bool(source.broadcast)
    count = 0 if stays else 1 if is_whole else cut.num_partitions
    table: Any = source.rows
    shares = _pieces(table, _PRODUCERS, random) if cut.producers else [table]
    wire = table.schema if source.map_schema is None else source.map_schema
    for column in source.sort_within or ():
        if column not in wire.names:
            near = close_matches(column, wire.names)
            raise UnknownColumnError(
                f"sort_within: there is no column {column!r}",
                asked=f"sort_within={column!r}",
                have=", ".join(wire.names),
                remedy=" · ".join(f"sort_within={name!r}" for name in near or wire.names[:3]),
            )
    partitions: list[list[list[pa.RecordBatch]]] = [[] for _ in range(count)]
    name = f"map of input {number}" if number else "map"
    for producer, share in enumerate(shares):
        batches = _cut(share, random) if cut.map_batches else whole(share)
        if source.map is not None:
            _note(trace, name, batches)
        mapped = _called("map", source.map, [(table.schema, batches)], cut)
        mapped = list(DdlCast(wire, "map", option).all(iter(mapped)))
        if stays:
            partitions += [[mapped]] if share.num_rows else []
            continue
        if source.combine is not None and cut.combine:
            mapped = _combined(mapped, source.combine, wire, cut, random, trace)
        by = [source.by] if isinstance(source.by, str) else source.by
        by = GlobalSelector() if is_whole else by
        selector = selector_of(by, producer, count, cut.seed)
        for partition, batches in enumerate(placed(mapped, wire, selector, count)):
            partitions[partition].append(batches)
    return wire, partitions


def _combined(
    batches: list[pa.RecordBatch],
    combine: BatchFunction,
    wire: pa.Schema,
    cut: Cut,
    random: Random,
    trace: Trace,
) -> list[pa.RecordBatch]:
    """Return the rows of a producer after some calls of combine, each with any of the rows that are left."""
    for _ in range(random.randrange(1, _COMBINES)):
        batches = _cut(pa.Table.from_batches(batches, wire), random)
        random.shuffle(batches)
        number = random.randint(0, len(batches))
        rows, left = [batch for batch in batches[:number] if batch.num_rows], batches[number:]
        if rows:
            _note(trace, "combine", rows)
            merged = _called("combine", combine, [(wire, rows)], cut)
            batches = [*ExactCast(wire, "combine").all(iter(merged)), *left]
    return batches


def _in_order(
    wire: pa.Schema, parts: list[list[pa.RecordBatch]], sort: Any, cut: Cut, random: Random
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the batches of one partition as reduce gets them."""
    if cut.order:
        # A producer's own batches stay in their order.
        queues = [list(_cut(pa.Table.from_batches(part, wire), random)) for part in parts if part]
        batches = []
        while queues:
            queue = random.choice(queues)
            batches.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
    else:
        batches = [batch for part in parts for batch in part]
    if sort:
        batches = list(sort_batches(batches, sort, _SORT_MEMORY))
    table = pa.Table.from_batches(batches, wire)
    return wire, _cut(table, random) if cut.reduce_batches else whole(table)


def _check_by(name: str, value: Any) -> None:
    if isinstance(value, type):
        raise refuse(name, value, f"is {kind_of(value)}, not an object of it", "a selector")
    if callable(value):
        function(name, value, 1, "def by(batch): ..., which returns a number for each row")
    elif not isinstance(value, BuiltIn):
        names(name, value)


def _check_broadcast(name: str, value: Any) -> None:
    if not isinstance(value, bool) and not (isinstance(value, str) and value == "auto"):
        takes = 'True, False or "auto"'
        raise refuse(name, value, f"is not {takes}", takes)


def _called(
    name: str,
    function: BatchFunction | None,
    inputs: Sequence[tuple[pa.Schema, list[pa.RecordBatch]]],
    cut: Cut,
) -> list[Any]:
    """Return the batches that a function makes of the given ones."""
    if function is None:
        return list(inputs[0][1])

    def call() -> Iterator[Any]:
        sources = [Batches(iter(batches), schema) for schema, batches in inputs]
        return returned(name, function(*sources))

    if cut.again:
        abandoned = call()
        next(abandoned, None)
        abandoned.close()  # type: ignore[attr-defined]
    return list(call())


def _note(trace: Trace, name: str, batches: list[pa.RecordBatch]) -> None:
    trace.batches.setdefault(name, []).append([batch.num_rows for batch in batches])


def _table(rows: Any) -> pa.Table:
    """Return rows as a table, with the types in which Spark would have them."""
    table = rows if isinstance(rows, pa.Table) else _table_of(rows)
    kinds = [field.with_type(plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds))


def _table_of(rows: Any) -> pa.Table:
    batches = list(returned("rows", rows))
    if not batches or not all(isinstance(batch, pa.RecordBatch) for batch in batches):
        empty = next(iter(batches_of(rows)), None)
        raise OptionError(
            f"rows is {kind_of(rows)}, not a table",
            have="no batches" if empty is None else type(empty).__name__,
            remedy="a pyarrow.Table · a DataFrame of polars or pandas · a list of batches",
        )
    return pa.Table.from_batches(batches)


def _cut(table: pa.Table, random: Random) -> list[pa.RecordBatch]:
    """Return the rows in batches of any size, some without rows."""
    batches = whole(table)
    if not batches:
        return [pa.RecordBatch.from_pylist([], schema=table.schema)] * random.randrange(2)
    return _pieces(batches[0], _BATCHES, random)


def _pieces(rows: Any, most: int, random: Random) -> list[Any]:
    """Return the rows of a table or a batch in at most ``most`` pieces, of which some may be empty."""
    ends = sorted(random.randint(0, rows.num_rows) for _ in range(random.randrange(most)))
    return [
        rows.slice(start, end - start)
        for start, end in zip([0, *ends], [*ends, rows.num_rows], strict=True)
    ]
