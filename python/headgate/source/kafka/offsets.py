"""Offsets to start from or to stop at, and how they are found out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from headgate._kafka import error_text
from headgate._times import milli_of
from headgate.errors import SourceError
from headgate.source.arguments import refuse, whole_number

if TYPE_CHECKING:
    from headgate.source.kafka.split import Partition

_OTHERWISE: Final = ("error", "earliest", "latest")


@dataclass(frozen=True, slots=True)
class KafkaOffsets:
    """An offset for each partition. Flink's OffsetsInitializer.

    Use the methods that make one.

    Attributes:
        kind: ``"earliest"``, ``"latest"``, ``"committed"``, ``"time"`` or ``"given"``.
        time: ms since 1970, for ``"time"``.
        offsets: topic, partition and offset, for ``"given"``.
        otherwise: for partitions without a committed or given offset: ``"error"``, ``"earliest"``
            or ``"latest"``.
    """

    kind: str
    time: int = 0
    offsets: tuple[tuple[str, int, int], ...] = ()
    otherwise: str = "error"

    def __post_init__(self) -> None:
        """Check the value of ``otherwise``."""
        if self.otherwise not in _OTHERWISE:
            raise refuse("otherwise", self.otherwise, "is no offset", " or ".join(_OTHERWISE))

    @classmethod
    def earliest(cls) -> Self:
        """Return the offset of the oldest record that the broker has."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> Self:
        """Return the offset after the newest record, or after the newest one that is committed."""
        return cls("latest")

    @classmethod
    def committed(cls, otherwise: str = "error") -> Self:
        """Return the offset that the consumer group has committed.

        Args:
            otherwise: for partitions without one: ``"error"``, ``"earliest"`` or ``"latest"``.

        Raises:
            OptionError: ``otherwise`` is none of these.
        """
        return cls("committed", otherwise=otherwise)

    @classmethod
    def at_time(cls, time: int | datetime) -> Self:
        """Return the offset of the first record at or after a time; the latest one if there is none.

        Args:
            time: ms since 1970, or a datetime; one without a time zone counts as UTC.

        Raises:
            OptionError: the time is neither, or before 1970.
        """
        if isinstance(time, datetime):
            time = milli_of(time)
        return cls("time", time=whole_number("time", time, 0))

    @classmethod
    def given(cls, offsets: Mapping[Partition, int], otherwise: str = "error") -> Self:
        """Return these offsets, by topic and partition.

        Args:
            offsets: such as ``{("orders", 0): 17}``.
            otherwise: for other partitions: ``"error"``, ``"earliest"`` or ``"latest"``.

        Raises:
            OptionError: an offset is negative, or ``otherwise`` is none of these.
        """
        entries = []
        for (topic, partition), offset in sorted(offsets.items()):
            whole_number("partition", partition, 0, 2**31 - 1)
            entries.append((topic, partition, whole_number("offset", offset, 0)))
        return cls("given", offsets=tuple(entries), otherwise=otherwise)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the offsets of an option.

        Args:
            text: ``earliest``, ``latest``, ``committed``, ``committed:earliest``, ``committed:latest``,
                a time as ms since 1970 or in ISO format after ``time:``, or JSON such as
                ``{"orders": {"0": 17}}``.

        Raises:
            ValueError: it is none of these.
        """
        kind, _, rest = text.strip().partition(":")
        if text.lstrip().startswith("{"):
            topics = json.loads(text)
            return cls.given({(t, int(p)): o for t, ps in topics.items() for p, o in ps.items()})
        if kind in {"earliest", "latest"} and not rest:
            return cls(kind)
        if kind == "committed":
            return cls.committed(rest or "error")
        if kind == "time" and rest:
            return cls.at_time(int(rest) if rest.isdecimal() else datetime.fromisoformat(rest))
        raise ValueError(text)

    def find(
        self, admin: Any, group: str | None, wanted: Iterable[Partition], settings: OffsetSettings
    ) -> dict[Partition, int]:
        """Ask the brokers for the offsets of partitions; blocks.

        Args:
            admin: a client of confluent-kafka.
            group: the consumer group, for committed offsets.
            wanted: the partitions.
            settings: how to ask.

        Raises:
            SourceError: a broker did not answer, or a partition has no offset.
        """
        partitions = list(wanted)
        if not partitions:
            return {}
        if self.kind in {"earliest", "latest", "time"}:
            return _listed(admin, self.kind, self.time, partitions, settings)
        if self.kind == "given":
            have = {(topic, number): offset for topic, number, offset in self.offsets}
        else:
            have = _committed(admin, str(group), partitions, settings)
        missing = [partition for partition in partitions if partition not in have]
        offsets = {partition: have[partition] for partition in partitions if partition in have}
        if missing and self.otherwise == "error":
            topic, number = missing[0]
            what = "was given" if self.kind == "given" else f"is committed by group {group!r}"
            raise SourceError(
                f"no offset of partition {topic}-{number} {what}",
                have=f"{len(missing)} of {len(partitions)} partitions have none",
                remedy='otherwise="earliest" · otherwise="latest"',
                details={"splits": [f"{topic}-{number}" for topic, number in missing]},
            )
        return offsets | _listed(admin, self.otherwise, 0, missing, settings)


@dataclass(frozen=True, slots=True)
class OffsetSettings:
    """How to ask brokers for offsets.

    Attributes:
        timeout: in seconds.
        is_committed_only: True if records of open transactions are not read.
    """

    timeout: float
    is_committed_only: bool


def _listed(
    admin: Any, kind: str, time: int, partitions: list[Partition], settings: OffsetSettings
) -> dict[Partition, int]:
    from confluent_kafka import IsolationLevel, TopicPartition  # noqa: PLC0415 - optional
    from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415

    if not partitions:
        return {}
    spec = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}.get(
        kind, lambda: OffsetSpec.for_timestamp(time)
    )()
    level = IsolationLevel.READ_UNCOMMITTED
    if settings.is_committed_only:
        level = IsolationLevel.READ_COMMITTED
    specs = {TopicPartition(*partition): spec for partition in partitions}
    answers = admin.list_offsets(specs, isolation_level=level, request_timeout=settings.timeout)
    offsets = {}
    for partition, answer in answers.items():
        key = partition.topic, partition.partition
        offsets[key] = _result(answer, f"the {kind} offset of {key[0]}-{key[1]}", settings).offset
    late = [key for key, offset in offsets.items() if offset < 0]
    # No record is as late as the time: the next one to come is the first.
    return offsets | _listed(admin, "latest", 0, late, settings) if kind == "time" else offsets


def _committed(
    admin: Any, group: str, partitions: list[Partition], settings: OffsetSettings
) -> dict[Partition, int]:
    from confluent_kafka import (  # noqa: PLC0415 - optional
        ConsumerGroupTopicPartitions,
        TopicPartition,
    )

    request = ConsumerGroupTopicPartitions(group, [TopicPartition(*key) for key in partitions])
    (answer,) = admin.list_consumer_group_offsets(
        [request], request_timeout=settings.timeout
    ).values()
    positions = _result(answer, f"the offsets of group {group!r}", settings).topic_partitions
    return {
        (position.topic, position.partition): position.offset
        for position in positions
        if position.offset >= 0
    }


def _result(answer: Any, what: str, settings: OffsetSettings) -> Any:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

    try:
        return answer.result(settings.timeout + 5)
    except (KafkaException, TimeoutError) as error:
        raise SourceError(f"Kafka did not tell {what}: {error_text(error)}") from error
