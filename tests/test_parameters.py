"""Every parameter of every public call outside of streams and Spark gets every wrong value of tests/kit/bad_values.py."""

import inspect
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.bad_values import Call, not_covered, problems

import headgate
import headgate.sink
import headgate.source
import headgate.testing
from headgate import flink
from headgate.source import CsvOptions, FileSource, NumberSequenceSource, WatermarkStrategy
from headgate.source.watermark import TimestampAssigner

TABLE = pa.table({"k": ["a", "b", "a"], "n": [1, 2, 3]})
SCHEMA = TABLE.schema
FOLDER = Path(tempfile.mkdtemp(prefix="headgate-parameters-"))
headgate.sink.write(TABLE, headgate.sink.FileSink(FOLDER / "in", mode="overwrite"))


def same(batches):
    return batches


def read_all(source):
    """Read the first record of a source: it may have no end."""
    with headgate.source.read(source) as records:
        next(records, None)


def write_all(sink):
    headgate.sink.write(TABLE, sink)


def apply(function):
    headgate.testing.run(TABLE, by="k", reduce=function, schema=SCHEMA)


def send(selector):
    headgate.testing.run(TABLE, by=selector)


def in_environment(use):
    """Return a function that makes an environment, calls ``use`` with it, and closes it."""

    def call(*arguments, **named):
        with headgate.ShuffleEnvironment() as environment:
            use(environment, *arguments, **named)

    return call


def on_gate(use):
    def call(*arguments, **named):
        with headgate.ShuffleEnvironment() as environment:
            partition = environment.create_result_partition(1, kind="blocking")
            with headgate.RecordWriter(partition, serializer="bytes") as writer:
                writer.emit(b"a record")
            use(environment.create_input_gate([partition.address(0)]), *arguments, **named)

    return call


def on_writer(use):
    def call(*arguments, **named):
        with headgate.ShuffleEnvironment() as environment:
            partition = environment.create_result_partition(2, kind="blocking")
            with headgate.RecordWriter(partition, serializer="bytes") as writer:
                use(writer, *arguments, **named)

    return call


def on_partition(use):
    def call(*arguments, **named):
        with headgate.ShuffleEnvironment() as environment:
            use(environment.create_result_partition(2), *arguments, **named)

    return call


def on_reader(use):
    return on_gate(
        lambda gate, *arguments, **named: use(
            headgate.RecordReader(gate, serializer="bytes"), *arguments, **named
        )
    )


def method(around, cls, name, **more):
    """Return the call of a method on an object that ``around`` makes."""
    function = getattr(cls, name)
    made = around(function)
    signature = inspect.signature(function)
    made.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return Call(f"{cls.__name__}.{name}", made, **more)


def made(name, around, cls, arguments):
    """Return the call of a class whose first argument ``around`` makes."""
    function = around(cls)
    signature = inspect.signature(cls)
    function.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return Call(name, function, lambda: arguments)


def new(cls, **more):
    return Call(cls.__name__, cls, **more)


SPLITS = headgate.source.plan_splits(NumberSequenceSource(0, 10))
STRATEGY = WatermarkStrategy.for_monotonous_timestamps()
BARRIER = headgate.CheckpointBarrier(1, 0, "aligned")
#: A class can be called, so it may be a function of a user, whose errors are its own.
A_CLASS = dict.fromkeys(("function", "map", "combine", "reduce", "record"), ("class",))
#: Waits that last.
ENDLESS = {"timeout": ("None", "True", "huge", "infinite", "fraction")}
CALLS = [
    # The exchange in processes.
    new(headgate.Batches, good=lambda: {"batches": TABLE.to_batches(), "schema": SCHEMA}, use=list),
    new(headgate.HashSelector, good=lambda: {"columns": ["k"]}, use=send),
    new(headgate.KeyGroupSelector, good=lambda: {"column": "k"}, use=send),
    new(headgate.RebalanceSelector, use=send),
    new(headgate.RescaleSelector, use=send),
    new(headgate.RoundRobinSelector, use=send),
    new(headgate.ShuffleSelector, use=send),
    new(
        headgate.ShuffleEnvironment,
        good=lambda: {"secret": bytes(32), "exchange_id": bytes(16)},
        use=lambda environment: environment.close(),
    ),
    method(
        in_environment,
        headgate.ShuffleEnvironment,
        "create_result_partition",
        good=lambda: {"num_subpartitions": 2},
    ),
    method(in_environment, headgate.ShuffleEnvironment, "create_input_gate"),
    method(
        in_environment,
        headgate.ShuffleEnvironment,
        "serve",
        good=lambda: {"partition_id": bytes(16), "indexes": FOLDER / "indexes"},
    ),
    method(
        in_environment,
        headgate.ShuffleEnvironment,
        "withdraw",
        good=lambda: {"partition_id": bytes(16)},
    ),
    method(in_environment, headgate.ShuffleEnvironment, "abort", good=lambda: {"cause": "end"}),
    made("RecordReader", on_gate, headgate.RecordReader, {"serializer": "bytes"}),
    made("BufferReader", on_gate, headgate.BufferReader, {}),
    made("MutableRecordReader", on_gate, flink.MutableRecordReader, {"serializer": "bytes"}),
    made("SuperstepReader", on_gate, flink.SuperstepReader, {"serializer": "bytes"}),
    made("RecordWriter", on_partition, headgate.RecordWriter, {"schema": SCHEMA}),
    new(flink.UnionInputGate, good=lambda: {"gates": []}),
    Call(
        "decode_channel_state",
        headgate.decode_channel_state,
        lambda: {"parts": b"", "schema": SCHEMA},
    ),
    method(on_partition, headgate.ResultPartition, "address", good=lambda: {"subpartition": 0}),
    method(on_partition, headgate.ResultPartition, "fail", good=lambda: {"cause": "end"}),
    method(
        on_partition,
        headgate.ResultPartition,
        "on_task_event",
        good=lambda: {"name": "e", "handler": print},
    ),
    method(
        on_partition,
        headgate.ResultPartition,
        "release_subpartition",
        good=lambda: {"subpartition": 0},
    ),
    method(
        on_partition,
        headgate.ResultPartition,
        "wait_consumed",
        good=lambda: {"timeout": 0},
        works=ENDLESS,
    ),
    method(
        on_partition,
        headgate.ResultPartition,
        "wait_all_data_processed",
        good=lambda: {"timeout": 0},
        works=ENDLESS,
    ),
    method(on_writer, headgate.RecordWriter, "emit", good=lambda: {"record": b"x"}),
    method(on_writer, headgate.RecordWriter, "broadcast_emit", good=lambda: {"record": b"x"}),
    made("random_emit", on_writer, flink.random_emit, {"record": b"x"}),
    method(on_writer, headgate.RecordWriter, "broadcast_event", good=lambda: {"name": "e"}),
    method(
        on_writer, headgate.RecordWriter, "broadcast_barrier", good=lambda: {"barrier": BARRIER}
    ),
    method(
        on_writer,
        headgate.RecordWriter,
        "broadcast_cancellation",
        good=lambda: {"checkpoint_id": 1},
    ),
    method(on_writer, headgate.RecordWriter, "end_of_data"),
    method(on_writer, headgate.RecordWriter, "fail", good=lambda: {"cause": "end"}),
    method(
        on_writer, headgate.RecordWriter, "take_channel_state", good=lambda: {"checkpoint_id": 1}
    ),
    method(on_writer, headgate.RecordWriter, "wait_available", good=lambda: {"timeout": 0}),
    method(on_reader, headgate.RecordReader, "poll_next"),
    method(on_reader, headgate.RecordReader, "poll_priority_event"),
    method(on_reader, headgate.RecordReader, "wait_available", good=lambda: {"timeout": 0}),
    method(
        on_reader, headgate.RecordReader, "take_channel_state", good=lambda: {"checkpoint_id": 1}
    ),
    *(
        method(on_gate, headgate.InputGate, name, good=good)
        for name, good in (
            ("abort_checkpoint", lambda: {"checkpoint_id": 1, "reason": "late"}),
            ("acknowledge_all_records_processed", lambda: {"channel": 0}),
            ("add_channel", lambda: {"address": None}),
            ("announce_buffer_size", lambda: {"size": 4096}),
            ("convert_to_priority", lambda: {"channel": 0, "sequence_number": 0}),
            ("enable_checkpointing", dict),
            ("fail", lambda: {"cause": "end"}),
            ("resume_consumption", lambda: {"channel": 0}),
            ("send_task_event", lambda: {"name": "e"}),
            ("update_channel", lambda: {"channel": 0, "address": None}),
        )
    ),
    Call("per_key", headgate.per_key, lambda: {"keys": "k", "function": same}, apply, A_CLASS),
    Call(
        "per_groups",
        headgate.per_groups,
        lambda: {"keys": "k", "function": lambda rows, offsets: rows},
        apply,
        A_CLASS,
    ),
    # Sources.
    new(CsvOptions, use=lambda csv: FileSource(FOLDER / "x.csv", "csv", csv=csv)),
    new(FileSource, good=lambda: {"paths": FOLDER / "in"}, use=read_all),
    Call(
        "FileSource.with_columns",
        FileSource(FOLDER / "in").with_columns,
        lambda: {"columns": ["n"]},
        lambda source: source and read_all(source),
    ),
    Call(
        "FileSource.with_filter",
        FileSource(FOLDER / "in").with_filter,
        lambda: {"expression": pc.field("n") > 1},
        read_all,
    ),
    Call(
        "NumberSequenceSource.with_columns",
        NumberSequenceSource(0, 10).with_columns,
        lambda: {"columns": ["id"]},
        lambda source: source and read_all(source),
    ),
    new(NumberSequenceSource, good=lambda: {"start": 0, "end": 10}, use=read_all),
    new(
        headgate.source.NexmarkSource,
        good=lambda: {"kind": "bid", "events": 100},
        use=read_all,
        works={"rate": ("fraction",), "event_rate": ("fraction",)},
    ),
    new(
        headgate.source.RateSource,
        good=lambda: {"rows_per_second": 1000, "rows": 10},
        use=read_all,
        works={"rows_per_second": ("fraction",), "start_time": ("huge",)},
    ),
    new(headgate.source.SocketSource, good=lambda: {"host": "h", "port": 9, "schema": SCHEMA}),
    Call(
        "HybridSource.builder",
        headgate.source.HybridSource.builder,
        lambda: {"source": NumberSequenceSource(0, 10)},
    ),
    Call(
        "HybridSourceBuilder.add_source",
        headgate.source.HybridSource.builder(NumberSequenceSource(0, 10)).add_source,
        lambda: {"source": NumberSequenceSource(0, 10)},
        lambda builder: read_all(builder.build()),
    ),
    Call(
        "read",
        headgate.source.read,
        lambda: {"source": NumberSequenceSource(0, 10)},
        list,
    ),
    Call(
        "plan_splits", headgate.source.plan_splits, lambda: {"source": NumberSequenceSource(0, 10)}
    ),
    Call(
        "read_splits",
        headgate.source.read_splits,
        lambda: {
            "source": NumberSequenceSource(0, 10),
            "version": SPLITS.version,
            "splits": SPLITS.splits,
        },
        list,
    ),
    new(TimestampAssigner, good=lambda: {"column": "at"}),
    Call(
        "WatermarkStrategy.for_bounded_out_of_orderness",
        WatermarkStrategy.for_bounded_out_of_orderness,
        lambda: {"bound_ms": 1},
    ),
    Call(
        "WatermarkStrategy.for_generator", WatermarkStrategy.for_generator, lambda: {"make": dict}
    ),
    Call(
        "WatermarkStrategy.for_punctuated", WatermarkStrategy.for_punctuated, lambda: {"find": dict}
    ),
    Call("WatermarkStrategy.with_idleness", STRATEGY.with_idleness, lambda: {"timeout": 1}),
    Call(
        "WatermarkStrategy.with_timestamp_assigner",
        STRATEGY.with_timestamp_assigner,
        lambda: {"column": "at"},
    ),
    Call(
        "WatermarkStrategy.with_watermark_alignment",
        STRATEGY.with_watermark_alignment,
        lambda: {"group": "g", "max_drift_ms": 1},
    ),
    # Sinks.
    new(
        headgate.sink.FileSink,
        good=lambda: {"path": FOLDER / "out", "mode": "append"},
        use=write_all,
    ),
    *(
        Call(f"FileSink.{name}", getattr(headgate.sink.FileSink(FOLDER / "out"), name), good)
        for name, good in (
            ("check_schema", lambda: {"schema": SCHEMA}),
            ("create_committer", lambda: {"context": headgate.sink.CommitterContext("j")}),
            ("create_writer", lambda: {"context": headgate.sink.WriterContext("j")}),
        )
    ),
    new(headgate.sink.FunctionSink, good=lambda: {"function": print}),
    new(
        headgate.sink.LocalWrite,
        good=lambda: {"sink": headgate.sink.FileSink(FOLDER / "out", mode="append")},
    ),
    new(headgate.sink.CommitterContext, good=lambda: {"job": "j"}),
    new(headgate.sink.WriterContext, good=lambda: {"job": "j"}),
    Call(
        "write",
        headgate.sink.write,
        lambda: {"data": TABLE, "sink": headgate.sink.FileSink(FOLDER / "out", mode="append")},
    ),
    # Tests of functions.
    new(
        headgate.testing.Cut,
        use=lambda cut: headgate.testing.run(TABLE, by="k", reduce=same, cut=cut),
    ),
    new(
        headgate.testing.Input,
        good=lambda: {"rows": TABLE},
        use=lambda one: headgate.testing.run([one]),
        works=A_CLASS,
    ),
    Call(
        "run",
        headgate.testing.run,
        lambda: {"rows": TABLE, "by": "k", "reduce": same},
        works=A_CLASS,
    ),
    Call(
        "check",
        headgate.testing.check,
        lambda: {"rows": TABLE, "by": "k", "reduce": same, "schema": SCHEMA, "tries": 1},
        works={**A_CLASS, "tries": ("huge",)},
    ),
    new(headgate.testing.Service, use=lambda service: service.close()),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_wrong_argument_works_or_is_refused_in_words(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a text is a path
    found = problems(call)
    assert not found, "\n".join(found)


#: Public names that are no calls of users, each kind with its reason.
OTHERS = {
    "takes a writer alone": "end_of_superstep",
    "has no parameters": "BroadcastSelector ForwardSelector GlobalSelector SinkCommitter",
    "is given to users, who do not make it": (
        "Buffer ChannelAddress CheckpointAborted CheckpointBarrier CheckpointComplete Event EventAnnouncement "
        "InputGate ResultPartition TaskEvent HybridSource HybridSourceBuilder LocalRead Planned ReaderInfo "
        "Recovered Request WriteResult WatermarkAlignment WatermarkStrategy"
    ),
    "is an enumeration or an exception": (
        "DataType EndOfDataStatus HeadgateError HeadgateWarning Boundedness InputStatus OperatingMode"
    ),
    "is a part for authors of sources, called by Headgate and checked by SourceTestBase": (
        "FileCheckpoint FileSplit JsonSerializer "
        "NumberSplit RecordsBySplits "
        "SourceEvent SourceOperator SplitFetcher SplitsAddition SplitsChange "
        "SplitsRemoval"
    ),
}


@pytest.mark.parametrize(
    "module",
    [headgate, flink, headgate.source, headgate.sink, headgate.testing],
    ids=lambda m: m.__name__,
)
def test_every_public_call_is_tried(module):
    names = {name: getattr(module, name) for name in module.__all__}
    concrete = {name: what for name, what in names.items() if not inspect.isabstract(what)}
    others = {name: why for why, several in OTHERS.items() for name in several.split()}
    assert not_covered(concrete, CALLS, others) == set()
