"""Runs functions of streams in a test, step by step: no job, no thread, and no clock but the test's."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate._arguments import arrow_schema
from headgate._closing import Closing
from headgate._kinds import kind_of
from headgate.errors import OptionError
from headgate.source.watermark.generator import MAX_WATERMARK
from headgate.stream import DataStream, SnapshotFolder
from headgate.stream.graph.nodes import Edge, StreamGraph
from headgate.stream.graph.operator import OperatorContext
from headgate.stream.graph.stages import MAX_PARALLELISM
from headgate.stream.operators.results import Results

if TYPE_CHECKING:
    from headgate.batches import Rows
    from headgate.stream.graph.nodes import Node
    from headgate.stream.graph.operator import Operator


class StreamHarness(Closing):
    """The operators of a stream in this thread, each as one task. A context manager, which closes them.

    Args:
        build: gets a stream for each schema, and returns the stream to test.
        schemas: of the inputs.

    Raises:
        OptionError: ``build`` returns no stream.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.stream import ProcessFunction, ReducingStateDescriptor
        >>> from headgate.testing.streams import StreamHarness
        >>> class Total(ProcessFunction):
        ...     def open(self, context):
        ...         self.n = context.get_state(ReducingStateDescriptor("n", "sum", pa.int64()))
        ...     def process(self, batch, context):
        ...         self.n.add(batch["n"])
        ...         return context.keys.append_column("n", self.n.get())
        >>> clicks = pa.schema([("user", pa.string()), ("n", pa.int64())])
        >>> def totals(rows):
        ...     return rows.key_by("user").process(Total, schema=clicks)
        >>> with StreamHarness(totals, clicks) as harness:
        ...     harness.process(pa.record_batch([["ann", "bob"], [1, 2]], schema=clicks))
        ...     harness.restart()
        ...     harness.process(pa.record_batch([["ann"], [3]], schema=clicks))
        ...     harness.take().to_pylist()
        [{'user': 'ann', 'n': 1}, {'user': 'bob', 'n': 2}, {'user': 'ann', 'n': 4}]
    """

    def __init__(self, build: Callable[..., DataStream], *schemas: pa.Schema) -> None:
        self._sources = [_input(schema) for schema in schemas]
        stream = build(*self._sources)
        if not isinstance(stream, DataStream):
            raise OptionError(
                f"build returned {kind_of(stream)}, not a stream",
                remedy="lambda rows: rows.key_by(...).process(...)",
            )
        self._stream = stream
        self._nodes: list[Node] = stream._graph.nodes  # noqa: SLF001 - one package
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-harness-")
        self._restarts = 0
        self._emitted: dict[str | None, list[pa.RecordBatch]] = defaultdict(list)
        self._operators: dict[str, Operator] = {}
        #: The wall clock that the functions see, in ms since 1970.
        self.processing_time = 0
        self._open(None)

    def process(self, rows: Rows, *, input: int = 0) -> None:  # noqa: A002 - the plain word
        """Let the functions handle rows, as one batch for each batch in them.

        Args:
            rows: a batch, a table or a DataFrame, with the columns of the input.
            input: number of the input, in the order of ``schemas``.

        Raises:
            HeadgateError: as in a job.
        """
        node = self._sources[input]._edges[0].node  # noqa: SLF001 - one package
        for batch in Results("the test", node.schema).batches(f"rows of input {input}", rows):
            self._emit(node, batch, None)

    def advance_watermark(self, to: int | datetime) -> None:
        """Pass a watermark: timers of event time fire, and windows close.

        Args:
            to: ms since 1970, or a time.
        """
        ms = _ms(to)
        for operator in self._operators.values():
            operator.advance_watermark(ms)

    def advance_processing_time(self, to: int | datetime) -> None:
        """Set the wall clock: timers of processing time fire.

        Args:
            to: ms since 1970, or a time.
        """
        self.processing_time = _ms(to)
        for operator in self._operators.values():
            due = operator.next_processing_timer
            if due is not None and due <= self.processing_time:
                operator.advance_processing_time(self.processing_time)

    def end(self) -> None:
        """End the inputs: all timers of event time fire, and all windows close."""
        self.advance_watermark(MAX_WATERMARK)
        for operator in self._operators.values():
            operator.end_input()

    def restart(self) -> None:
        """Take a checkpoint, forget all functions, and go on with new ones that have the checkpoint's state.

        As in a job, the watermark is no part of it: pass it again.
        """
        self._restarts += 1
        states: dict[str, SnapshotFolder] = {}
        for uid, operator in self._operators.items():
            part = operator.snapshot(self._restarts, savepoint=False)
            if part is not None and part.state is not None:
                path = Path(self._folder.name) / f"{self._restarts}-{len(states)}"
                path.mkdir()
                folder = SnapshotFolder(str(path))
                part.state.write(folder)
                states[uid] = folder
        self._close_operators()
        self._open(states)

    def take(self, output: str | None = None) -> pa.Table:
        """Return the rows that were emitted since the last call.

        Args:
            output: name of a side output of the last operator; None for the main one.

        Raises:
            StreamError: there is no such output.
        """
        of = self._stream if output is None else self._stream.side_output(output)
        return pa.Table.from_batches(self._emitted.pop(output, []), of.schema)

    def close(self) -> None:
        """Close the functions."""
        self._close_operators()
        self._folder.cleanup()

    def _open(self, states: dict[str, SnapshotFolder] | None) -> None:
        operators = [(node, node.make()) for node in self._nodes if node.make is not None]
        self._operators = {node.uid: operator for node, operator in operators}
        for node, operator in reversed(operators):
            folder = None if states is None else states.get(node.uid)
            operator.open(
                OperatorContext(
                    uid=node.uid,
                    index=0,
                    parallelism=1,
                    max_parallelism=MAX_PARALLELISM,
                    emit=partial(self._emit, node),
                    job="test",
                    attempt=f"attempt-{self._restarts}",
                    clock=lambda: self.processing_time,
                    is_durable=True,
                    restored_checkpoint=self._restarts or None,
                    restored=() if folder is None else ((folder, self._restarts),),
                )
            )

    def _emit(self, node: Node, batch: pa.RecordBatch, output: str | None) -> None:
        """Pass rows to all operators behind an output; those of the last operator are kept."""
        edges = self._stream._edges  # noqa: SLF001 - one package
        if any(edge.node is node and edge.output == output for edge in edges):
            self._emitted[None].append(batch)
        elif len(edges) == 1 and edges[0].node is node:
            self._emitted[output].append(batch)
        for after in self._nodes:
            for edge in after.inputs:
                if edge.node is node and edge.output == output:
                    for part in after.limits.parts(batch):
                        self._operators[after.uid].process(part)

    def _close_operators(self) -> None:
        operators, self._operators = self._operators, {}
        for operator in operators.values():
            operator.close()


def _input(schema: pa.Schema) -> DataStream:
    """Return a stream whose rows come from the test."""
    arrow_schema("schema", schema)
    graph = StreamGraph()
    return DataStream(graph, Edge(graph.add("source", None, schema=schema)))


def _ms(of: int | datetime) -> int:
    if isinstance(of, datetime):
        return int(of.replace(tzinfo=of.tzinfo or UTC).timestamp() * 1000)
    return of
