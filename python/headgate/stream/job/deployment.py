"""The tasks of one attempt in one worker: environment, partitions, gates and threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.address import ChannelAddress
from headgate.environment import ShuffleEnvironment
from headgate.errors import CancelledError, HeadgateError
from headgate.key_groups import key_group_range
from headgate.source.runtime import PlacedReaderContext, SourceOperator
from headgate.stream.job.messages import data, text
from headgate.stream.job.naming import safe
from headgate.stream.operators.limits import UNLIMITED
from headgate.stream.operators.operator import OperatorContext
from headgate.stream.runtime.chain import OperatorChain, limits_of
from headgate.stream.runtime.channel_state import InFlight, is_channels
from headgate.stream.runtime.inputs import GateInput, SourceInput, TaskInput
from headgate.stream.runtime.outputs import TaskOutput
from headgate.stream.runtime.task import StreamTask, TaskListener, TaskSnapshot
from headgate.stream.state.backend import wall_clock
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.locations import TASKS, below
from headgate.stream.state.retention import SnapshotRetention

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.control.messages import Message
    from headgate.control.place import Place
    from headgate.source.api.event import SourceEvent
    from headgate.stream.api.graph import JobGraph, Stage

TaskKey = tuple[int, int]
#: Bytes up to which small pages become one batch.
_BATCH_BYTES: Final = 256 * 1024


class SourceListener(TaskListener, Protocol):
    """What tasks and readers tell their worker."""

    def tell_of_source(self, attempt: int, kind: str, task: TaskKey, **fields: Any) -> None:
        """Send a message of a source's reader to the coordinator."""


class Deployment:
    """All tasks of one attempt in this process.

    Args:
        graph: the job.
        name: of the job.
        attempt: number of the attempt.
        place: of the coordinator, whose secret the data plane shares.
        options: of the environment.
        message: the DEPLOY message: the tasks, and what they continue from.
        listener: the worker.
    """

    def __init__(
        self,
        graph: JobGraph,
        name: str,
        attempt: int,
        place: Place,
        options: Mapping[str, Any],
        message: Message,
        listener: SourceListener,
    ) -> None:
        self.attempt = attempt
        self.tasks: dict[TaskKey, StreamTask] = {}
        self._graph = graph
        self._name = name
        self._listener = listener
        self._mode = message["mode"]
        #: True if a snapshot knows no row from behind its barrier. Else its watermark may be ahead of rows that come again.
        self.is_exactly_once = message["mode"] == "exactly_once"
        self._restored: int | None = message["restored"]
        self._deployed = {tuple(one["task"]): one for one in message["tasks"]}
        self._outputs: dict[TaskKey, list[TaskOutput]] = {}
        self._keys: dict[int, TaskKey] = {}
        self._started = time.monotonic()
        #: Complete checkpoints by task, for the threads that write snapshots.
        self._completed: dict[TaskKey, list[int]] = {}
        self._retention: dict[tuple[TaskKey, str], SnapshotRetention] = {}
        #: Snapshots that are not acknowledged, which keep the state that they are of.
        self.being_written: list[TaskSnapshot] = []
        self.environment = ShuffleEnvironment(
            secret=place.secret, exchange_id=place.exchange_id, epoch=attempt, **options
        )
        try:
            for key in self._deployed:
                self._outputs[key] = self._make_outputs(graph.stages[key[0]])
        except BaseException:
            self.environment.close()
            raise

    def _make_outputs(self, stage: Stage) -> list[TaskOutput]:
        outputs = []
        for edge in stage.edges:
            receivers = self._graph.stages[edge.stage]
            partition = self.environment.create_result_partition(
                receivers.parallelism, schema=edge.schema
            )
            most = self._graph.max_parallelism
            outputs.append(TaskOutput(edge, partition, most, limits_of(receivers)))
        return outputs

    def partitions(self) -> list[Any]:
        """Return for each task its stage and index, and the partitions of its edges."""
        return [
            [*key, [output.partition.id.hex() for output in outputs]]
            for key, outputs in self._outputs.items()
        ]

    def connect(self, inputs: Sequence[Any]) -> None:
        """Make the gates and start all tasks.

        Args:
            inputs: for each task its stage, its index and its channels: host, port, partition, subpartition, process.
        """
        channels = {
            (stage, index): [
                ChannelAddress(host, port, bytes.fromhex(partition), at, bytes.fromhex(process))
                for host, port, partition, at, process in found
            ]
            for stage, index, found in inputs
        }
        for key in self._deployed:
            stage = self._graph.stages[key[0]]
            make_input = partial(self._make_input, key, stage, channels.get(key, []))
            task = StreamTask(
                f"{stage.name} ({key[1] + 1}/{stage.parallelism})",
                OperatorChain(stage, self._outputs[key], partial(self._context, key, stage)),
                self._outputs[key],
                self._listener,
                make_input,
                self._in_flight(key, stage),
            )
            self.tasks[key] = task
            self._keys[id(task)] = key
        self._started = time.monotonic()
        for task in self.tasks.values():
            task.start()

    def _make_input(
        self, key: TaskKey, stage: Stage, channels: list[ChannelAddress], task: StreamTask
    ) -> TaskInput:
        source = stage.head.source
        if source is not None:
            tell = partial(self._listener.tell_of_source, self.attempt)
            context = TaskReaderContext(key, stage.parallelism, tell)
            operator: SourceOperator[Any] = SourceOperator(
                source,
                context,
                watermarks=stage.head.watermarks,
                report_watermark=lambda ms: tell("WATERMARK", key, ms=ms),
                report_finished=lambda ids: tell("SPLITS_FINISHED", key, ids=list(ids)),
                ends_open=self._graph.ends_open,
            )
            version, splits = self._deployed[key]["splits"]
            if splits:
                operator.add_splits(version, [(name, data(body)) for name, body in splits])
            waited = task.back_pressured_ns
            return SourceInput(operator, stage.head.schema, task, task.mailbox, waited)
        schema = stage.head.inputs[0].schema
        gate = self.environment.create_input_gate(channels, schema=schema)
        batch_bytes = _BATCH_BYTES if limits_of(stage) == UNLIMITED else 0
        return GateInput(gate, schema, task, task.mailbox, batch_bytes, self._mode)

    def _in_flight(self, key: TaskKey, stage: Stage) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield operators of a task, and the rows that were on their way to them at the checkpoint."""
        schemas = {node.uid: node.inputs[0].schema for node in stage.operators if node.inputs}
        groups = key_group_range(key[1], stage.parallelism, self._graph.max_parallelism)
        in_flight = InFlight(self._deployed[key]["in_flight"])
        return in_flight.rows(schemas, groups, self._graph.max_parallelism)

    def _context(
        self,
        key: TaskKey,
        stage: Stage,
        uid: str,
        emit: Callable[[pa.RecordBatch, str | None], None],
    ) -> OperatorContext:
        deployed = self._deployed[key]
        return OperatorContext(
            uid=uid,
            index=key[1],
            parallelism=stage.parallelism,
            max_parallelism=self._graph.max_parallelism,
            emit=emit,
            job=self._name,
            attempt=f"{deployed['attempt']}-{key[0]}-{key[1]}",
            clock=wall_clock,
            is_durable=bool(deployed["folders"]),
            restored_checkpoint=self._restored,
            allow_dropped_state=deployed["allow_dropped_state"],
            restored_watermark=deployed["watermarks"].get(uid),
            restored=[
                (SnapshotFolder(folder), number)
                for folder, number in deployed["state"].get(uid, ())
            ],
        )

    def key_of(self, task: StreamTask) -> TaskKey:
        """Return stage and index of a task."""
        return self._keys[id(task)]

    def has(self, task: StreamTask) -> bool:
        """Return True if the task is of this attempt."""
        return id(task) in self._keys

    def tasks_of(self, stage: int) -> list[StreamTask]:
        """Return the tasks of a stage that run here."""
        return [task for key, task in self.tasks.items() if key[0] == stage]

    def folder(self, key: TaskKey, uid: str, snapshot: TaskSnapshot) -> SnapshotFolder | None:
        """Return the folder for an operator's snapshot; None if the job keeps no checkpoints."""
        if snapshot.savepoint:
            return SnapshotFolder(
                below(snapshot.savepoint, f"{TASKS}/{key[0]}-{key[1]}-{safe(uid)}")
            )
        path = self._deployed[key]["folders"].get(uid)
        if path is None:
            return None
        folder = SnapshotFolder(path)
        if (key, uid) not in self._retention:
            retained = self._deployed[key]["retained"]
            self._retention[key, uid] = SnapshotRetention(folder, retained)
        return folder

    def channel_folder(self, key: TaskKey) -> SnapshotFolder:
        """Return the folder for a task's rows in flight."""
        return SnapshotFolder(self._deployed[key]["channels"])

    def delete_old(self, key: TaskKey, checkpoint: int) -> None:
        """Delete the task's snapshots and rows in flight that a complete checkpoint replaces."""
        path = self._deployed[key]["channels"]
        if path is not None:
            folder = SnapshotFolder(path)
            with suppress(HeadgateError):  # it is tried again after the next checkpoint
                retained = self._deployed[key]["retained"]
                completed = [*self._completed.get(key, ()), checkpoint]
                kept = self._completed[key] = completed[-retained:]
                for name in folder.names():
                    if is_channels(name) and name < f"{kept[0]:010d}-":
                        folder.delete(name)
        for (owner, uid), retention in list(self._retention.items()):
            if owner == key:
                with suppress(HeadgateError):  # it is tried again after the next checkpoint
                    retention.complete(checkpoint, self.tasks[key].files_in_flight(uid))

    def discard(self, key: TaskKey, checkpoint: int) -> None:
        """Delete the task's snapshot of an aborted checkpoint, if it was written."""
        for (owner, _), retention in list(self._retention.items()):
            if owner == key:
                with suppress(HeadgateError):  # the folder goes with its attempt
                    retention.discard(checkpoint)

    def figures(self) -> list[dict[str, Any]]:
        """Return the figures of all tasks."""
        return [
            {
                "task": list(key),
                "elapsed_ms": int((time.monotonic() - self._started) * 1000),
                "rows": task.metrics.rows_in,
                "batches": task.metrics.batches_in,
                "watermark": task.metrics.watermark,
                "busy_ms": task.metrics.busy_ns // 1_000_000,
                "blocked_ms": task.back_pressured_ns() // 1_000_000,
                "dropped": task.dropped,
            }
            for key, task in self.tasks.items()
        ]

    def cancel(self, timeout: float) -> list[str]:
        """End all tasks and release everything; return the names of tasks that do not end."""
        for task in self.tasks.values():
            task.cancel()
        self.environment.abort(CancelledError("the task was cancelled"))
        late = [task.name for task in self.tasks.values() if not task.join(timeout)]
        for snapshot in list(self.being_written):
            for part in snapshot.operators.values():
                if part.state is not None:
                    part.state.cancel()
        self.environment.close()
        return late


class TaskReaderContext(PlacedReaderContext):
    """A reader's view of its task.

    Args:
        task: stage and index.
        parallelism: number of readers.
        tell: sends a message to the coordinator.
    """

    def __init__(self, task: TaskKey, parallelism: int, tell: Callable[..., None]) -> None:
        super().__init__(task[1], parallelism)
        self._task = task
        self._tell = tell

    def send_split_request(self) -> None:
        """Request a split."""
        self._tell("SPLIT_REQUEST", self._task, host=self._host)

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator."""
        self._tell("SOURCE_EVENT", self._task, name=event.name, payload=text(event.payload))
