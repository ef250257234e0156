"""The tasks of one attempt in one worker: environment, partitions, gates and threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate import _options
from headgate._process import peak_resident_bytes
from headgate.address import ChannelAddress
from headgate.control.cause import Cause
from headgate.environment import ShuffleEnvironment
from headgate.errors import CancelledError
from headgate.key_groups import key_group_range
from headgate.source.runtime import LocalReaderContext, SourceOperator
from headgate.stream.graph.call_rates import TokenLink
from headgate.stream.graph.limits import UNLIMITED
from headgate.stream.graph.operator import OperatorContext
from headgate.stream.job.messages import from_base64, to_base64
from headgate.stream.job.task_files import TaskFiles
from headgate.stream.runtime.chain import OperatorChain
from headgate.stream.runtime.channel_state import InFlight
from headgate.stream.runtime.inputs import GateInput, SourceInput, TaskInput
from headgate.stream.runtime.outputs import TaskOutput
from headgate.stream.runtime.task import StreamTask
from headgate.stream.state.backend import wall_clock
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.memory import StateMemory

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow as pa

    from headgate.control.address import CoordinatorAddress
    from headgate.control.messages import Message
    from headgate.stream.graph.call_rates import TokenReport
    from headgate.stream.graph.metrics import Metrics
    from headgate.stream.graph.stages import JobGraph, Stage, TaskId
    from headgate.stream.job.shared import SharedObjects
    from headgate.stream.runtime.task_snapshot import TaskSnapshot

_LOG: Final = logging.getLogger("headgate.stream")
#: Bytes up to which small batches become one. The result of a batch that is larger than a segment may have to wait for room
#: within an operator, where no barrier overtakes it.
_BATCH_BYTES: Final = 256 * 1024

#: Sends a message to the coordinator: kind, and fields.
Send = Callable[..., None]


class Deployment:
    """All tasks of one attempt in this process.

    Args:
        graph: the job.
        name: of the job.
        attempt: number of the attempt.
        address: of the coordinator, whose secret the data plane shares.
        options: of the environment.
        message: the DEPLOY message: the tasks, and what they continue from.
        send: sends a message to the coordinator, from any thread.
        writers: write snapshots.
        shared: loads what tasks share.
    """

    def __init__(
        self,
        graph: JobGraph,
        name: str,
        attempt: int,
        address: CoordinatorAddress,
        options: Mapping[str, Any],
        message: Message,
        send: Send,
        writers: ThreadPoolExecutor,
        shared: SharedObjects,
    ) -> None:
        self.attempt = attempt
        #: The last measurement, in us.
        self.lock_wait_us = 0
        self.tasks: dict[TaskId, StreamTask] = {}
        self._graph = graph
        self._name = name
        self._send = send
        self._writers = writers
        self._shared = shared
        self._reporting = threading.Lock()
        #: True once the tasks were told to end: what they say counts no more.
        self._is_cancelled = False
        #: True if a snapshot knows no row from behind its barrier. Else its watermark may be ahead of rows that come again.
        self._is_exactly_once = message["alignment"] != "at_least_once"
        self._restored: int | None = message["restored"]
        self._deployed = {tuple(entry["task"]): entry for entry in message["tasks"]}
        self._files = {key: TaskFiles(entry) for key, entry in self._deployed.items()}
        self._outputs: dict[TaskId, list[TaskOutput]] = {}
        resolved = _options.resolve("environment", options)
        self._batch_bytes = min(_BATCH_BYTES, int(resolved["segment_size"]))
        #: Of all tasks together; each operator of a task has its share.
        self._state_memory = StateMemory(graph.state_memory, resolved["temp_directories"] or ())
        #: By task and operator.
        self._links: dict[tuple[TaskId, str], TokenLink] = {}
        self._started = time.monotonic()
        #: Snapshots that are not acknowledged, which keep the state that they are of.
        self._being_written: list[TaskSnapshot] = []
        self.environment = ShuffleEnvironment(
            secret=address.secret, exchange_id=address.exchange_id, epoch=attempt, **options
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
            outputs.append(TaskOutput(edge, partition, most, receivers.limits))
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
                for host, port, partition, at, process in addresses
            ]
            for stage, index, addresses in inputs
        }
        tasks: dict[TaskId, StreamTask] = {}
        for key in self._deployed:
            stage = self._graph.stages[key[0]]
            make_input = partial(self._make_input, key, stage, channels.get(key, []))
            task = StreamTask(
                key,
                f"{stage.name} ({key[1] + 1}/{stage.parallelism})",
                OperatorChain(stage, self._outputs[key], partial(self._context, key, stage)),
                self._outputs[key],
                self,
                make_input,
                self._in_flight(key, stage),
            )
            tasks[key] = task
        self._started = time.monotonic()
        # At once, since another thread may be counting.
        self.tasks = tasks
        for task in tasks.values():
            task.start()

    def _make_input(
        self, key: TaskId, stage: Stage, channels: list[ChannelAddress], task: StreamTask
    ) -> TaskInput:
        source = stage.head.source
        if source is not None:
            tell = partial(self._tell, task=list(key))
            context = LocalReaderContext(
                key[1],
                stage.parallelism,
                lambda host: tell("SPLIT_REQUEST", host=host),
                lambda event: tell(
                    "SOURCE_EVENT", name=event.name, payload=to_base64(event.payload)
                ),
            )
            operator: SourceOperator[Any] = SourceOperator(
                source,
                context,
                task.mailbox.signal,
                watermarks=stage.head.watermarks,
                report_watermark=lambda ms: tell("WATERMARK", ms=ms),
                report_finished=lambda ids: tell("SPLITS_FINISHED", ids=list(ids)),
                ends_open=self._graph.ends_open,
                watermark_interval=self._graph.watermark_interval / 1000,
            )
            version, splits = self._deployed[key]["splits"]
            restored = version, [(name, from_base64(body)) for name, body in splits]
            schema, waited = stage.head.schema, task.held_back_ns
            most = self._batch_bytes
            return SourceInput(operator, schema, task, task.mailbox, restored, waited, most)
        schema = stage.head.inputs[0].schema
        gate = self.environment.create_input_gate(channels, schema=schema)
        batch_bytes = self._batch_bytes if stage.limits == UNLIMITED else 0
        return GateInput(gate, schema, task, task.mailbox, batch_bytes)

    def _in_flight(self, key: TaskId, stage: Stage) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield operators of a task, and the rows that were on their way to them at the checkpoint."""
        schemas = {node.uid: node.inputs[0].schema for node in stage.operators if node.inputs}
        groups = key_group_range(key[1], stage.parallelism, self._graph.max_parallelism)
        in_flight = InFlight(self._deployed[key]["in_flight"])
        return in_flight.rows(schemas, groups, self._graph.max_parallelism)

    def _context(
        self,
        key: TaskId,
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
            state_memory=self._state_memory.share(),
            folder=deployed["folders"].get(uid),
            tokens=self._link(key, stage, uid),
            load_shared=partial(self._load_shared, stage, uid),
            restored=[
                (SnapshotFolder(folder), number)
                for folder, number in deployed["state"].get(uid, ())
            ],
        )

    def _load_shared(self, stage: Stage, uid: str, metrics: Metrics) -> Any:
        """Return what the tasks of an operator share; None if that is nothing."""
        (load,) = (node.shared for node in stage.operators if node.uid == uid)
        if load is None:
            return None
        return self._shared.get(uid, load, metrics, lambda: self._is_cancelled)

    def _link(self, key: TaskId, stage: Stage, uid: str) -> TokenLink | None:
        """Return the way of tokens to an operator of a task, if its calls have a rate."""
        if all(node.uid != uid or node.rate is None for node in stage.operators):
            return None

        def report(values: Sequence[TokenReport]) -> None:
            rows = [list(value) for value in values]
            self._tell("TOKENS_WANTED", task=list(key), operator=uid, values=rows)

        link = self._links[key, uid] = TokenLink(report)
        return link

    def take_tokens(self, message: Message) -> None:
        """Pass on the tokens of an operator of a task."""
        link = self._links[tuple(message["task"]), message["operator"]]
        link.on_tokens([(value, number) for value, number in message["values"]], message["rate"])

    def tasks_of(self, stage: int) -> list[StreamTask]:
        """Return the tasks of a stage that run here."""
        return [task for key, task in self.tasks.items() if key[0] == stage]

    def discard(self, checkpoint: int) -> None:
        """Delete the snapshots of an aborted checkpoint that were written."""
        for files in self._files.values():
            self._in_writer(files.discard, checkpoint)

    # Calls of tasks, on their threads.

    def on_snapshot(self, task: StreamTask, snapshot: TaskSnapshot) -> None:
        """Write a snapshot in another thread, then acknowledge the checkpoint."""
        self._being_written.append(snapshot)
        self._in_writer(self._acknowledge_or_decline, task, snapshot)

    def on_complete(self, task: StreamTask, checkpoint: int) -> None:
        """Delete what a complete checkpoint replaces: later snapshots of the task build on this one."""
        self._in_writer(self._files[task.key].complete, checkpoint, task.files_in_flight)

    def on_declined(self, task: StreamTask, checkpoint: int, reason: str) -> None:
        """Tell the coordinator."""
        self._tell("DECLINED", task=list(task.key), checkpoint=checkpoint, reason=reason)

    def on_end(self, task: StreamTask) -> None:
        """Tell the coordinator, with the last figures."""
        self.tell_figures()
        self._tell("ENDED", task=list(task.key))

    def on_finished(self, task: StreamTask, error: BaseException | None) -> None:
        """Tell the coordinator how the task ended, with the last figures: rows come until a stop too."""
        if error is None:
            self.tell_figures()
            self._tell("FINISHED", task=list(task.key))
        else:
            self._tell("FAILED", cause=Cause.of(error, where=f"task {task.name}").fields())

    def tell_figures(self) -> None:
        """Send the figures of all tasks, in the order in which they were taken."""
        with self._reporting:
            peak = peak_resident_bytes()
            figures = {"tasks": self._figures(), "lock_wait_us": self.lock_wait_us}
            self._tell("METRICS", **figures, peak_resident_bytes=peak)

    def _tell(self, kind: str, **fields: Any) -> None:
        if not self._is_cancelled:
            self._send(kind, attempt=self.attempt, **fields)

    def _in_writer(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call in another thread; an error there is logged."""

        def run() -> None:
            try:
                call(*arguments)
            except Exception:  # noqa: BLE001 - logged; there is nobody to raise to
                _LOG.warning("%s failed", call.__name__, exc_info=True)

        if not self._is_cancelled:
            self._writers.submit(run)

    def _acknowledge_or_decline(self, task: StreamTask, snapshot: TaskSnapshot) -> None:
        try:
            self._acknowledge(task, snapshot)
        except Exception as error:  # noqa: BLE001 - declined
            reason = f"the snapshot of {task.name} cannot be written: {error}"
            self.on_declined(task, snapshot.checkpoint, reason)
        finally:
            self._being_written.remove(snapshot)

    def _acknowledge(self, task: StreamTask, snapshot: TaskSnapshot) -> None:
        started = time.monotonic()
        state = self._files[task.key].write(snapshot, has_watermarks=self._is_exactly_once)
        state |= {
            "in_flight": snapshot.channels.size,
            "sync": snapshot.sync_ms,
            "start_delay": snapshot.start_delay,
            "async": int((time.monotonic() - started) * 1000),
            "alignment": task.metrics.alignment_ms,
        }
        if snapshot.splits is not None:
            version, splits = snapshot.splits
            state["splits"] = [version, [[split_id, to_base64(body)] for split_id, body in splits]]
        checkpoint = snapshot.checkpoint
        self._tell("ACKNOWLEDGED", task=list(task.key), checkpoint=checkpoint, state=state)

    def _figures(self) -> list[dict[str, Any]]:
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
                "metrics": task.user_metrics,
                "state_sizes": task.state_sizes,
            }
            for key, task in self.tasks.items()
        ]

    def cancel(self, timeout: float) -> list[str]:
        """End all tasks and release everything; return the names of tasks that do not end."""
        self._is_cancelled = True
        for task in self.tasks.values():
            task.cancel()
        self._shared.wake_up()
        self.environment.abort(CancelledError("the task was cancelled"))
        late = [task.name for task in self.tasks.values() if not task.join(timeout)]
        for snapshot in list(self._being_written):
            for part in snapshot.operators.values():
                if part.state is not None:
                    part.state.cancel()
        self.environment.close()
        # They refer to this object, which hears of them.
        self.tasks = {}
        return late
