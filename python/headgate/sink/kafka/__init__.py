"""A sink that writes rows as records of Kafka, by confluent-kafka. Decision: ADR 0037."""

from importlib.util import find_spec

from headgate._kafka import without_client

if find_spec("confluent_kafka") is None:
    raise without_client("headgate.sink.kafka")

from headgate.sink.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
