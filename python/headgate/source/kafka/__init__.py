"""A source of the records of Kafka's topics, by confluent-kafka. Decision: ADR 0036."""

from importlib.util import find_spec

from headgate._kafka import without_client

if find_spec("confluent_kafka") is None:
    raise without_client("headgate.source.kafka")

from headgate.source.kafka.offsets import KafkaOffsets
from headgate.source.kafka.source import KafkaSource
from headgate.source.kafka.split import KafkaCheckpoint, KafkaSplit

__all__ = ["KafkaCheckpoint", "KafkaOffsets", "KafkaSource", "KafkaSplit"]
