"""Wrong values for every parameter of every public call of headgate.stream."""

import inspect
import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.bad_values import Call, methods_of, not_covered, problems

import headgate.stream
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource, WatermarkStrategy
from headgate.stream import (
    Aggregate,
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStateDescriptor,
    ConnectedStreams,
    CoProcessFunction,
    CountWindow,
    DataStream,
    HttpPost,
    KeyedStream,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    Retry,
    SessionWindow,
    SlidingWindow,
    StateTtlConfig,
    StreamingJob,
    StreamingQuery,
    Top,
    TumblingWindow,
    ValueStateDescriptor,
    read_state,
    stream,
    write_state,
)

#: For folders that are not there.
NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.int64())])


class Keep(ProcessFunction):
    def process(self, batch, context):
        return batch


class KeepBoth(CoProcessFunction):
    def process_first(self, batch, context):
        return batch

    def process_second(self, batch, context):
        return batch


class KeepAll(BroadcastProcessFunction):
    def process(self, batch, context):
        return batch

    def process_broadcast(self, batch, context):
        return []


def source():
    return NumberSequenceSource(0, 3, splits=1)


def rows():
    at = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("id")
    return stream(source(), watermarks=at)


def keyed():
    return rows().key_by("id")


def by_parity():
    def with_parity(batch):
        return batch.append_column("parity", pc.bit_wise_and(batch["id"], 1))

    return rows().map(with_parity).key_by("parity")


def job():
    return rows().sink(FunctionSink(len))


def run(made):
    """Run what a call made, up to the end."""
    if isinstance(made, DataStream):
        made = made.sink(FunctionSink(len))
    if isinstance(made, StreamingJob):
        made.run(restarts=0)


def end(query):
    if isinstance(query, StreamingQuery):
        query.await_termination(30)


def on_ended(name):
    """Return a call of a method of a job that is over: nothing is waited for."""
    method = getattr(StreamingQuery, name)

    def call(*arguments, **named):
        query = job().start()
        end(query)
        return method(query, *arguments, **named)

    call.__signature__ = without_self(method)
    return call


def without_self(method):
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def bound(make, name):
    """Return a call of a method of a new object each time."""

    def call(*arguments, **named):
        return getattr(make(), name)(*arguments, **named)

    call.__signature__ = without_self(getattr(type(make()), name))
    return call


def keep(batch):
    return batch


async def answer(row):
    return row


CALLS = [
    Call("stream", stream, lambda: {"source": source()}, run),
    Call("DataStream.map", bound(rows, "map"), lambda: {"function": keep}, run),
    Call(
        "DataStream.filter",
        bound(rows, "filter"),
        lambda: {"predicate": pc.field("id") > 1},
        run,
    ),
    Call(
        "DataStream.process",
        bound(rows, "process"),
        lambda: {"function": Keep, "schema": SCHEMA},
        run,
    ),
    Call("DataStream.side_output", bound(rows, "side_output"), lambda: {"name": "x"}, run),
    Call("DataStream.key_by", bound(rows, "key_by"), lambda: {"keys": ("id",)}, run),
    Call("DataStream.union", bound(rows, "union"), lambda: {"others": (rows(),)}, run),
    Call("DataStream.rebalance", bound(rows, "rebalance"), dict, run),
    Call("DataStream.broadcast", bound(rows, "broadcast"), dict, run),
    Call("DataStream.sink", bound(rows, "sink"), lambda: {"sink": FunctionSink(len)}, run),
    Call(
        "DataStream.window",
        bound(rows, "window"),
        lambda: {"window": TumblingWindow("1 second"), "time": "id", "top": Top(1, by="id")},
        run,
    ),
    Call(
        "KeyedStream.window",
        bound(keyed, "window"),
        lambda: {
            "window": TumblingWindow("1 second"),
            "time": "id",
            "aggregates": [Aggregate("count")],
        },
        run,
    ),
    Call(
        "KeyedStream.aggregate",
        bound(keyed, "aggregate"),
        lambda: {"aggregates": (Aggregate("count"),)},
        run,
    ),
    Call("KeyedStream.top", bound(by_parity, "top"), lambda: {"n": 1, "by": "id"}, run),
    Call("KeyedStream.keep_last", bound(by_parity, "keep_last"), dict, run),
    Call("KeyedStream.keep_first", bound(by_parity, "keep_first"), lambda: {"by": "id"}, run),
    Call("KeyedStream.deduplicate", bound(keyed, "deduplicate"), dict, run),
    Call("KeyedStream.join", bound(keyed, "join"), lambda: {"other": keyed()}, run),
    Call(
        "DataStream.lookup",
        bound(rows, "lookup"),
        lambda: {"table": pa.table({"id": [1], "name": ["a"]}), "on": "id"},
        run,
    ),
    Call(
        "DataStream.map_async",
        bound(rows, "map_async"),
        lambda: {"function": answer, "schema": SCHEMA},
        run,
    ),
    Call(
        "DataStream.sink_async",
        bound(rows, "sink_async"),
        lambda: {"function": lambda batch: None, "retries": 1, "backoff": 0},
        run,
    ),
    Call("Retry", Retry, lambda: {"after": 1}),
    Call("HttpPost", HttpPost, lambda: {"url": "http://service.example/"}),
    Call("DataStream.connect", bound(rows, "connect"), lambda: {"other": rows().broadcast()}),
    Call(
        "BroadcastConnectedStream.process",
        bound(lambda: rows().connect(rows().broadcast()), "process"),
        lambda: {"function": KeepAll, "schema": SCHEMA},
        run,
    ),
    Call(
        "BroadcastStateDescriptor",
        BroadcastStateDescriptor,
        lambda: {"name": "v", "key_type": pa.int64(), "type": pa.int64()},
    ),
    Call("KeyedStream.connect", bound(keyed, "connect"), lambda: {"other": keyed()}),
    Call(
        "ConnectedStreams.process",
        bound(lambda: keyed().connect(keyed()), "process"),
        lambda: {"function": KeepBoth, "schema": SCHEMA},
        run,
    ),
    Call("StreamingJob.plan", bound(job, "plan")),
    Call("StreamingJob.start", bound(job, "start"), dict, end),
    Call("StreamingQuery.await_termination", on_ended("await_termination")),
    Call("StreamingQuery.cancel", on_ended("cancel")),
    Call(
        "StreamingQuery.savepoint",
        on_ended("savepoint"),
        lambda: {"path": "savepoint"},
    ),
    Call("StreamingQuery.stop", on_ended("stop")),
    Call(
        "StreamingQuery.rescale",
        on_ended("rescale"),
        lambda: {"parallelism": 2, "savepoint": "savepoint"},
    ),
    Call("read_state", read_state, lambda: {"savepoint": "nothing", "uid": "counts"}),
    Call(
        "write_state",
        write_state,
        lambda: {
            "folder": f"state-{next(NUMBERS)}",
            "uid": "counts",
            "rows": pa.table({"id": [1], "n": [2]}),
            "keys": ["id"],
        },
    ),
    Call("Aggregate", Aggregate, lambda: {"kind": "sum", "column": "id"}),
    Call("CountWindow", CountWindow, lambda: {"n": 3}),
    Call("Top", Top, lambda: {"n": 1, "by": "id"}),
    Call("TumblingWindow", TumblingWindow, lambda: {"size": "1 second"}),
    Call("SlidingWindow", SlidingWindow, lambda: {"size": "1 second", "slide": "1 second"}),
    Call("SessionWindow", SessionWindow, lambda: {"gap": "1 second"}),
    Call("ValueStateDescriptor", ValueStateDescriptor, lambda: {"name": "v", "type": pa.int64()}),
    Call("ListStateDescriptor", ListStateDescriptor, lambda: {"name": "v", "type": pa.int64()}),
    Call(
        "ReducingStateDescriptor",
        ReducingStateDescriptor,
        lambda: {"name": "v", "reduce": "sum", "type": pa.int64()},
    ),
    Call(
        "MapStateDescriptor",
        MapStateDescriptor,
        lambda: {"name": "v", "key_type": pa.int64(), "type": pa.int64()},
    ),
    Call("StateTtlConfig", StateTtlConfig, lambda: {"ttl": "1 second"}),
]

#: Calls that have no good arguments here: no side output, a job that is over, no savepoint.
REFUSED = {
    "DataStream.side_output",
    "StreamingQuery.savepoint",
    "StreamingQuery.rescale",
    "read_state",
}
#: Names without a call here, each with the reason.
OTHERS = {
    **dict.fromkeys(
        [
            "ProcessFunction",
            "CoProcessFunction",
            "CallFunction",
            "CallContext",
            "RuntimeContext",
            "KeyedContext",
            "Metrics",
            "Counter",
            "Gauge",
            "Histogram",
            "Tally",
            "BroadcastProcessFunction",
        ],
        "a user's own classes, and what they get",
    ),
    **dict.fromkeys(
        ["DataStream", "KeyedStream", "BroadcastStream", "ConnectedStreams"],
        "made by other calls",
    ),
    **dict.fromkeys(
        ["BroadcastConnectedStream", "StreamingJob", "StreamingQuery"],
        "made by other calls",
    ),
    **dict.fromkeys(
        [
            "CheckpointStats",
            "Failure",
            "JobState",
            "Run",
            "Stage",
            "Task",
            "Verdict",
            "Worker",
            "WindowOutput",
            "Snapshot",
        ],
        "what a job returns",
    ),
    **dict.fromkeys(
        [
            "BroadcastState",
            "KeyedStateBackend",
            "ListState",
            "MapState",
            "ReducingState",
            "SessionWindowOperator",
            "SnapshotFolder",
            "SnapshotRetention",
            "StateMemory",
            "Timers",
            "ValueState",
            "WindowOperator",
            "key_groups_of",
            "read_savepoint",
        ],
        "used by operators, and by tests of keyed state",
    ),
    "StreamingJob.run": "passes all on to start()",
    "Refusal": "an exception with any reason",
    "DataStream.to_dataframe": "needs Spark, see tests/spark/test_stream_frames.py",
}


@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_a_wrong_value_works_or_is_refused_in_words(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if call.name not in REFUSED:
        call.use(call.make({}))
    assert not problems(call)


def test_no_public_call_is_forgotten():
    public = {name: getattr(headgate.stream, name) for name in headgate.stream.__all__}
    for cls in (
        DataStream,
        ConnectedStreams,
        BroadcastConnectedStream,
        StreamingJob,
        StreamingQuery,
    ):
        public |= methods_of(cls)
    own = set(methods_of(KeyedStream)) - {
        name.replace("DataStream", "KeyedStream") for name in methods_of(DataStream)
    }
    public |= {name: getattr(KeyedStream, name.partition(".")[2]) for name in own}
    assert not not_covered(public, CALLS, OTHERS)
