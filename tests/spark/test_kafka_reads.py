"""``spark.read`` of a topic: all columns, as Spark's types."""

import pytest

pytest.importorskip("pyspark.sql.datasource")

from tests.kit.mock_kafka import Broker, expected

from headgate.source.kafka import KafkaOffsets, KafkaSource


@pytest.mark.soak
def test_a_topic_is_a_dataframe(spark):
    broker = Broker()
    topic = broker.fill(40)
    reader = spark.read.format("headgate").option("source", "kafka")
    frame = (
        reader.option("bootstrapServers", broker.servers)
        .option("topics", topic)
        .option("stoppingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )
    source = KafkaSource("b", topic, until=KafkaOffsets.latest(), headers=True)
    found = sorted(frame.toArrow().to_pylist(), key=lambda row: bytes(row["value"]))
    wanted = sorted(expected(topic, 40, source.schema).to_pylist(), key=lambda row: row["value"])
    assert found == wanted
    few = frame.where("partition = 1").selectExpr("cast(value as string)").collect()
    assert sorted(row[0] for row in few) == sorted(f"row {n}" for n in range(1, 40, 4))
