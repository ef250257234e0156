"""q5 from a topic of Kafka to another one, exactly once, beside Flink SQL with its own connector.

A broker runs on this machine. Bids are texts of JSON in two partitions; each record has its event's time. Both engines have two tasks of each
operator and a checkpoint each second, with which they commit their transactions, and end at the last record that is there at the start.
The time is that of the job without its start, which is that of a job over a few events. Before, the committed records are
compared with DuckDB's rows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.json
from benches import environments, harness
from benches.environments import PeerError
from benches.flink_cluster import FlinkError
from benches.nexmark import flink, oracle
from benches.nexmark.engines import CHECKED, FEW, patterns, surviving
from benches.nexmark.events import Nexmark, written
from benches.nexmark.queries import QUERIES
from tests.soak.kafka.broker import Broker

from headgate.sink.kafka import KafkaSink
from headgate.source import WatermarkStrategy
from headgate.source.kafka import KafkaOffsets, KafkaSource
from headgate.stream import stream

QUERY = "q5"
GOAL = 1.0
PARTITIONS = 2
BID = pa.schema([("auction", pa.int64()), ("dateTime", pa.timestamp("ms"))])
#: Transactions may be open for so long, in ms.
OPEN = 600_000
TABLE = {
    "bid": "auction BIGINT, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND",
    "answer": "auction BIGINT, num BIGINT, window_end TIMESTAMP(3)",
}


@dataclass(frozen=True)
class Topics:
    """A broker, and topics of bids by the number of events."""

    broker: Broker
    bids: dict[int, str]


def run(options: Namespace) -> None:
    """Compare the answers and the times; print and store the ratio."""
    events = options.events or (FEW * 4 if options.quick else 2_000_000)
    checked = FEW * 4 if options.quick else CHECKED
    engines: dict[str, Callable[[Topics, int, str], None]] = {"headgate": ours}
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(str(environments.downloaded("kafka_jars.sh"))))
        topics = Topics(broker, {n: filled(broker, n) for n in {events, checked, FEW}})
        if options.peers is None or "flink" in options.peers:
            try:
                sql = stack.enter_context(flink.flink())("sql")
                engines["flink"] = partial(flinks, sql)
            except (PeerError, FlinkError) as error:
                print(f"flink is not measured: {error}")
        failed: set[str] = set()
        contestants = {}
        for name, engine in engines.items():
            if not options.unchecked:
                surviving(name, failed, partial(check, name, engine, topics, checked))
            work = partial(net_seconds, engine, topics, events)
            contestants[name] = partial(surviving, name, failed, work)
        seconds = harness.measure("nexmark_kafka", contestants, turns=options.turns)
    for name in failed:
        del seconds[name]
    for name, times in seconds.items():
        median = statistics.median(times)
        print(
            f"  {QUERY} from topic to topic: {name} {median:.2f} s, {events / median:,.0f} events/s"
        )
    ratios = {}
    if "flink" in seconds:
        ratios["nexmark_kafka"] = harness.median_ratio(seconds["flink"], seconds["headgate"])
    goals = dict.fromkeys(ratios, GOAL)
    harness.report("nexmark_kafka", ratios, goals, quick=options.quick, seconds=seconds)


def filled(broker: Broker, events: int) -> str:
    """Return a new topic with the bids of some events, in the order of their times."""
    topic = broker.create(PARTITIONS)
    producer = broker.producer(linger_ms=20)
    files = ds.dataset(f"{written(environments.cache(), events)}/ordered/bid")
    number = 0
    for batch in files.to_batches(columns=["auction", "dateTime"]):
        times = batch["dateTime"].cast(pa.int64()).to_pylist()
        for value, at in zip(json_of(batch).to_pylist(), times, strict=True):
            producer.produce(topic, value, partition=number % PARTITIONS, timestamp=at)
            number += 1
            if number % 10_000 == 0:
                producer.poll(0)
                producer.flush()
    assert producer.flush() == 0
    return topic


def json_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the rows as texts of JSON; times are texts."""
    parts: list[object] = []
    for place, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        quote = '"' if pa.types.is_timestamp(field.type) else ""
        parts += [f'{"," if place else "{"}"{field.name}":{quote}', column.cast(pa.string()), quote]
    return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())


def rows_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A map: the rows of texts of JSON."""
    ends = pa.array([0, batch.num_rows], pa.int32())
    texts = pc.binary_join(pa.ListArray.from_arrays(ends, batch["value"]), b"\n")
    options = pa.json.ParseOptions(explicit_schema=BID)
    table = pa.json.read_json(
        pa.BufferReader(texts[0].as_buffer()),
        parse_options=options,
        # One block, so that there is one batch.
        read_options=pa.json.ReadOptions(
            use_threads=False, block_size=len(texts[0].as_buffer()) + 1
        ),
    )
    return table.combine_chunks().to_batches()[0]


def value_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A map: the records of results."""
    return pa.record_batch({"value": json_of(batch.select(["auction", "num", "window_end"]))})


def ours(topics: Topics, events: int, target: str) -> None:
    """Run our job."""
    source = KafkaSource(topics.broker.servers, topics.bids[events], until=KafkaOffsets.latest())
    times = WatermarkStrategy.for_bounded_out_of_orderness(4000)
    bids = stream(source, watermarks=times).map(rows_of, schema=BID)
    result = QUERIES[QUERY](Nexmark(lambda _kind, _columns: bids)).map(value_of)
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-") as folder:
        sink = KafkaSink(
            target, topics.broker.servers, delivery="exactly_once", staging=f"{folder}/staging"
        )
        job = result.sink(sink)
        job.run(parallelism=2, workers=2, checkpoint=f"{folder}/checkpoints", interval="1s")


def flinks(sql: flink.Flink, topics: Topics, events: int, target: str) -> None:
    """Run Flink's job."""
    common = {
        "connector": "kafka",
        "properties.bootstrap.servers": topics.broker.servers,
        "format": "json",
        "json.timestamp-format.standard": "SQL",
    }
    options = {
        "bid": {
            "topic": topics.bids[events],
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
        },
        "answer": {
            "topic": target,
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": target,
            "properties.transaction.timeout.ms": str(OPEN),
        },
    }
    tables = []
    for name, columns in TABLE.items():
        texts = ", ".join(f"'{key}' = '{text}'" for key, text in (common | options[name]).items())
        tables.append(f"CREATE TABLE {name} ({columns}) WITH ({texts})")
    job = f"INSERT INTO answer SELECT auction, num, window_end FROM ({flink.SQL[QUERY]})"
    sql.run(target, tables, job, {"execution.checkpointing.interval": "1 s"})


def net_seconds(engine: Callable[[Topics, int, str], None], topics: Topics, events: int) -> float:
    """Return the seconds of a job without those of its start."""
    took = []
    for count in (FEW, events):
        target = topics.broker.create(PARTITIONS)
        started = time.perf_counter()
        engine(topics, count, target)
        took.append(time.perf_counter() - started)
    return max(took[1] - took[0], 0.001)


def check(
    name: str, engine: Callable[[Topics, int, str], None], topics: Topics, events: int
) -> None:
    """Compare the committed records of an answer with DuckDB's rows.

    Raises:
        WrongAnswerError: they differ.
    """
    target = topics.broker.create(PARTITIONS)
    engine(topics, events, target)
    texts = b"\n".join(record.value() for record in topics.broker.rows(target))
    rows = pa.json.read_json(pa.BufferReader(texts))
    count = oracle.check(QUERY, rows, patterns(written(environments.cache(), events)))
    print(f"  {QUERY}: {name} has committed the {count:,} rows of DuckDB", flush=True)
