"""The operators of one task: rows pass from one to the next by a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.errors import InternalError
from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK
from headgate.stream.graph.limits import UNLIMITED, BatchLimits
from headgate.stream.graph.operator import OperatorSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.metrics import Metrics
    from headgate.stream.graph.nodes import Node
    from headgate.stream.graph.operator import Operator, OperatorContext
    from headgate.stream.graph.stages import Stage
    from headgate.stream.runtime.outputs import TaskOutput

#: Takes one batch.
Consumer = Callable[["pa.RecordBatch"], None]


@dataclass(frozen=True, slots=True)
class _Left:
    """The last of operators that are closed, by operator.

    Attributes:
        in_flight: files that snapshots in flight build on.
        dropped: rows and values, by counter.
        state_sizes: when they were closed.
    """

    in_flight: Mapping[str, set[str]]
    dropped: dict[str, dict[str, int]]
    state_sizes: dict[str, dict[str, int]]


class OperatorChain:
    """All operators of a task, and where their rows go. Source: Flink's OperatorChain.

    Args:
        stage: the operators and edges.
        outputs: one per edge of the stage.
        context: makes the context of an operator, from its uid and what takes its rows.
    """

    def __init__(
        self,
        stage: Stage,
        outputs: Sequence[TaskOutput],
        context: Callable[[str, Callable[[pa.RecordBatch, str | None], None]], OperatorContext],
    ) -> None:
        self._stage = stage
        self._outputs = outputs
        self._context = context
        #: Inputs first, so that a timer of one operator is handled before those behind it.
        self.operators: dict[str, Operator] = {}
        self._consumers: dict[tuple[str, str | None], list[Consumer]] = {}
        #: Rows of each output that nothing reads.
        self._unread: dict[tuple[str, str | None], int] = {}
        #: None until the operators are closed.
        self._left: _Left | None = None
        #: Of the functions of users.
        self._metrics: dict[str, Metrics] = {}
        #: The checkpoint that has no state; None before it.
        self._commit_only: int | None = None
        #: Operators in which rows may wait.
        self._waiting: list[Operator] = []
        #: Lets the task poll soon; the task sets it.
        self.wake_up: Callable[[], None] = _nothing
        #: Takes the rows of the task's input.
        self.head: Consumer = self._not_open

    def open(self) -> None:
        """Create and open all operators, the last ones first."""
        created: list[tuple[Node, Operator]] = []
        for node in self._stage.operators:
            if node.make is not None:
                operator = node.make()
                self.operators[node.uid] = operator
                created.append((node, operator))
        for node in self._stage.operators:
            self._connect(node)
        self._waiting = [operator for _, operator in created if operator.holds_watermarks]
        head = self._stage.head
        if head.make is not None:
            self.head = self.consumer(head)
        else:
            self.head = _to_all(self._consumers[head.uid, None])
        for node, operator in reversed(created):
            context = self._context(node.uid, self._emit_of(node.uid))
            self._metrics[node.uid] = context.metrics
            pass_on = partial(self.advance_watermark, after=node.uid)
            shared = context.load_shared(context.metrics)
            operator.open(replace(context, wake_up=self.wake_up, pass_on=pass_on, shared=shared))

    @property
    def limits(self) -> BatchLimits:
        """Limits of the task's input."""
        return self._stage.limits

    def consumer(self, node: Node) -> Consumer:
        """Return what takes the rows of an operator, within its limits."""
        process, limits = self.operators[node.uid].process, node.limits
        if limits == UNLIMITED:
            return process

        def process_parts(batch: pa.RecordBatch) -> None:
            for part in limits.parts(batch):
                process(part)

        return process_parts

    def take(self, uid: str, batch: pa.RecordBatch) -> None:
        """Let an operator handle rows that were on their way to it."""
        (node,) = (node for node in self._stage.operators if node.uid == uid)
        self.consumer(node)(batch)

    def _connect(self, node: Node) -> None:
        for output in (None, *node.side_outputs):
            place = node.uid, output
            consumers = [self.consumer(n) for n in self._stage.chained.get(place, ())]
            consumers += [
                target.emit
                for target in self._outputs
                if (target.edge.operator, target.edge.output) == place
            ]
            self._consumers[place] = consumers

    def _emit_of(self, uid: str) -> Callable[[pa.RecordBatch, str | None], None]:
        consumers, unread = self._consumers, self._unread

        def emit(batch: pa.RecordBatch, output: str | None) -> None:
            place = uid, output
            for consumer in consumers[place]:
                consumer(batch)
            if not consumers[place]:
                unread[place] = unread.get(place, 0) + batch.num_rows

        return emit

    @property
    def dropped(self) -> dict[str, dict[str, int]]:
        """Rows and values that each operator has dropped, by counter. Any thread may ask."""
        operators, left = self.operators, self._left
        if left is not None:
            return left.dropped
        dropped = {uid: dict(operator.dropped) for uid, operator in tuple(operators.items())}
        for (uid, output), rows in tuple(self._unread.items()):
            counter = operators[uid].unread_counter(output)
            dropped[uid][counter] = dropped[uid].get(counter, 0) + rows
        positive = {
            uid: {name: n for name, n in counters.items() if n > 0}
            for uid, counters in dropped.items()
        }
        return {uid: counters for uid, counters in positive.items() if counters}

    @property
    def state_sizes(self) -> dict[str, dict[str, int]]:
        """The size of the state of each operator that has some. Any thread may ask."""
        operators, left = self.operators, self._left
        if left is not None:
            return left.state_sizes
        sizes = {uid: dict(operator.state_size) for uid, operator in tuple(operators.items())}
        return {uid: size for uid, size in sizes.items() if size}

    @property
    def metrics(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Metrics of the functions of users, by operator and name. Any thread may ask."""
        figures = {uid: metrics.plain() for uid, metrics in tuple(self._metrics.items())}
        return {uid: plain for uid, plain in figures.items() if plain}

    def advance_watermark(self, watermark: int | None, after: str | None = None) -> None:
        """Let operators handle a watermark, and send it on behind them.

        Args:
            watermark: in ms; None if the task is idle.
            after: an operator that has held the watermark: it goes to those behind it. None for that of the input.
        """
        #: By operator whose rows come with the watermark: what it is behind the operator.
        reached: dict[str, int | None] = {} if after is None else {after: watermark}
        for node in self._stage.operators:
            uid = node.uid
            if after is None and node is self._stage.head:
                mark = watermark
            elif node.inputs and node.inputs[0].node.uid in reached:
                mark = reached[node.inputs[0].node.uid]
            else:
                continue
            operator = self.operators.get(uid)
            is_held = operator is not None and operator.holds_watermarks
            if operator is not None:
                mark = _handled(operator, mark)
            if not is_held:
                reached[uid] = mark
        for output in self._outputs:
            if output.edge.operator in reached:
                mark = reached[output.edge.operator]
                if mark is None:
                    output.emit_idle()
                else:
                    output.emit_watermark(mark)

    @property
    def is_full(self) -> bool:
        """True while an operator should get no rows."""
        return any(operator.is_full for operator in self._waiting)

    def poll(self, *, is_end: bool = False) -> bool:
        """Emit what other threads have finished, the last operators first; return False if that was nothing.

        An operator whose rows would go to one that is full waits.
        """
        has_moved = False
        for operator in reversed(self._waiting):
            has_moved = operator.poll(is_end=is_end) or has_moved
            if operator.is_full:
                break
        return has_moved

    def end(self) -> Iterator[None]:
        """Tell all operators that no row follows, and that they emit what waits: each when those before it are quiet."""
        for operator in self.operators.values():
            yield
            operator.end_input()

    @property
    def is_quiet(self) -> bool:
        """True if :meth:`poll` has nothing to emit, and will have nothing."""
        return all(operator.is_quiet for operator in self._waiting)

    @property
    def next_processing_timer(self) -> int | None:
        """Time in ms of the first timer of processing time."""
        times = (operator.next_processing_timer for operator in self.operators.values())
        return min((time for time in times if time is not None), default=None)

    def advance_processing_time(self, now: int) -> None:
        """Fire timers of processing time."""
        for operator in self.operators.values():
            operator.advance_processing_time(now)

    def flush(self) -> None:
        """Let all operators emit the rows that wait, inputs first."""
        for operator in self.operators.values():
            operator.flush()

    def snapshot(
        self, checkpoint: int, *, savepoint: bool, has_state: bool = True
    ) -> dict[str, OperatorSnapshot]:
        """Freeze the state of all operators; only sinks take part in a checkpoint without state."""
        if not has_state:
            self._commit_only = checkpoint
        snapshots: dict[str, OperatorSnapshot] = {}
        try:
            for uid, operator in self.operators.items():
                if not has_state and operator.has_state:
                    snapshots[uid] = OperatorSnapshot(is_left_out=True)
                    continue
                snapshot = operator.snapshot(checkpoint, savepoint=savepoint)
                if snapshot is not None:
                    snapshots[uid] = snapshot
        except BaseException:
            for operator in self.operators.values():
                operator.abort(checkpoint)
            raise
        return snapshots

    def complete(self, checkpoint: int) -> None:
        """Handle that a checkpoint is complete."""
        for operator in self.operators.values():
            if checkpoint != self._commit_only or not operator.has_state:
                operator.complete(checkpoint)

    def close(self) -> None:
        """Close and forget all operators; raise the first error when all are closed."""
        in_flight = {uid: operator.files_in_flight for uid, operator in self.operators.items()}
        self._left = _Left(in_flight, self.dropped, self.state_sizes)
        errors = []
        for operator in self.operators.values():
            try:
                operator.close()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        # They refer to each other in a circle, by what takes their rows, and to the maker of this chain.
        self.operators, self.head, self._waiting = {}, self._not_open, []
        self._consumers.clear()
        del self._context
        if errors:
            raise errors.pop(0)

    def files_in_flight(self, uid: str) -> set[str]:
        """Return the files that an operator's snapshots in flight build on. Any thread may ask."""
        operator = self.operators.get(uid)
        files = set() if operator is None else operator.files_in_flight
        left = self._left
        return files if left is None else left.in_flight.get(uid, set())

    @staticmethod
    def _not_open(batch: pa.RecordBatch) -> None:
        raise InternalError(f"a chain gets {batch.num_rows} rows before it is opened")


def delayed(watermark: int, delay: int) -> int:
    """Return a watermark that is so many ms behind; that of the end is not."""
    return watermark if watermark in {MIN_WATERMARK, MAX_WATERMARK} else watermark - delay


def _handled(operator: Operator, mark: int | None) -> int | None:
    """Let an operator handle a watermark, or None for idleness; return what it is behind the operator."""
    if mark is None:
        operator.set_idle()
        return None
    operator.advance_watermark(mark)
    return delayed(mark, operator.watermark_delay)


def _nothing() -> None:
    """Do nothing."""


def _to_all(consumers: Iterable[Consumer]) -> Consumer:
    consumers = tuple(consumers)
    if len(consumers) == 1:
        return consumers[0]

    def to_all(batch: pa.RecordBatch) -> None:
        for consumer in consumers:
            consumer(batch)

    return to_all
