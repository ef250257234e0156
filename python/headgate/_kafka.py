"""Shared by source and sink of Kafka: checks of the arguments, and librdkafka's errors as text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from headgate._kinds import kind_of
from headgate.errors import OptionError, PackageNotFound

#: librdkafka logs here, where it would write to stderr.
LOG: Final = logging.getLogger("headgate.kafka")


def without_client(module: str) -> PackageNotFound:
    """Return the error for a module that is imported without confluent-kafka."""
    return PackageNotFound(
        f"{module} needs confluent-kafka, which is not installed",
        asked=f"import {module}",
        remedy='pip install "headgate[kafka]" · pip install confluent-kafka',
    )


def checked_servers(servers: object) -> str:
    """Return the addresses of brokers.

    Raises:
        OptionError: they are no text, or an empty one.
    """
    if not isinstance(servers, str) or not servers.strip():
        raise OptionError(
            f"bootstrap_servers={servers!r} names no broker",
            remedy='bootstrap_servers="host-1:9092,host-2:9092"',
        )
    return servers


def checked_properties(properties: Any, ours: Mapping[str, str]) -> dict[str, Any]:
    """Return properties of librdkafka that a caller chose.

    Args:
        properties: the properties.
        ours: name -> what sets it, for those that a caller cannot choose.

    Raises:
        OptionError: they are no mapping of names, or one of them is not for the caller.
    """
    if not isinstance(properties, Mapping) or not all(isinstance(n, str) for n in properties):
        raise OptionError(
            f"properties are {kind_of(properties)}, not librdkafka's properties by name",
            remedy='properties={"security.protocol": "SSL"}',
        )
    for name in properties:
        if name in ours:
            raise OptionError(
                f"the property {name!r} cannot be chosen",
                asked=f"{name}={properties[name]!r}",
                have=ours[name],
                remedy=f"leave {name} out",
            )
    return dict(properties)


def error_text(error: Any) -> str:
    """Return name and text of a KafkaError, or of the one in a KafkaException."""
    inner = getattr(error, "args", None)
    kafka_error = inner[0] if inner and hasattr(inner[0], "name") else error
    return (
        f"{kafka_error.name()}: {kafka_error.str()}" if hasattr(kafka_error, "name") else str(error)
    )
