"""The committer that produces the staged rows of a checkpoint in one transaction. Decision: ADR 0037."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate._kafka import LOG, error_text
from headgate.errors import SinkError
from headgate.sink.kafka.producing import Producing
from headgate.sink.staged_rows import staged_rows
from headgate.sink.staging import Committable, StagedCommitter, clean_until

if TYPE_CHECKING:
    from headgate.sink.storage import Storage

#: Seconds after which a commit without rows renews the marker: brokers forget offsets after days.
_RENEW: Final = 3600.0
#: Seconds between two questions to a coordinator that starts.
_PAUSE: Final = 0.2


class KafkaCommitter(StagedCommitter):
    """Produces the rows of each checkpoint in one transaction, which also commits a marker.

    The marker is an offset of a consumer group of its own: the number of the checkpoint plus one, at
    partition 0 of the topic; 0 before the first checkpoint. Kafka commits rows and marker together, so
    the marker tells whether a checkpoint's rows are there, also after a crash. A new producer with the
    job's transactional id first ends the transaction of the one before, and locks it out.

    Args:
        topic: of the rows that name none, and of the marker.
        properties: of librdkafka, without those of transactions.
        storage: the folder of the staged rows.
        job: the job's name.
        timeout: longest wait for an answer of a broker, in seconds.
    """

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, Any],
        storage: Storage,
        job: str,
        timeout: float,
    ) -> None:
        super().__init__(storage, job, topic)
        self._topic = topic
        self._properties = dict(properties)
        self._timeout = timeout
        self._id = f"headgate-{job}-{topic}"
        self._producing: Producing | None = None
        self._group: Any = None
        self._marker = 0
        self._marked_at = 0.0

    def start(self, restored_checkpoint: int | None) -> None:
        """Lock out an older committer, and check the marker; see :meth:`SinkCommitter.start`."""
        if self._open() is None:
            if restored_checkpoint is not None:
                raise self._forgotten(restored_checkpoint)
            self._in_transaction([], 0)
        super().start(restored_checkpoint)

    def latest(self) -> int | None:
        """Return the checkpoint before the marker."""
        return self._marker - 1 if self._marker else None

    def commit_staged(self, checkpoint_id: int, staged: list[Committable]) -> None:
        """Produce the rows unless they are there; see :meth:`SinkCommitter.commit`."""
        if self._producing is None and self._open() is None:
            raise self._forgotten(checkpoint_id)
        # A task that has not heard of a commit yet passes its committable again with the next checkpoint.
        new = [entry for entry in staged if entry.number >= self._marker]
        is_old = time.monotonic() - self._marked_at > _RENEW
        if checkpoint_id >= self._marker and (new or is_old):
            self._in_transaction(new, checkpoint_id + 1)
        clean_until(self._storage, self._job, checkpoint_id)

    def close(self) -> None:
        """Close the clients; an open transaction is aborted by the next committer or its timeout."""
        producing, self._producing = self._producing, None
        if producing is not None:
            producing.close()
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def _forgotten(self, checkpoint: int) -> SinkError:
        return SinkError(
            f"Kafka does not know any more which rows of job {self._job} are committed",
            asked=f"checkpoint {checkpoint}",
            have=f"no offset of group {self._id!r}; brokers forget it after offsets.retention.minutes",
            remedy="look which rows are there, and start a job of another name after them",
        )

    def _open(self) -> int | None:
        """Make a producer, which ends and locks out older ones; return the marker, if there is one."""
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415

        shared = {
            n: v
            for n, v in self._properties.items()
            if n in {"bootstrap.servers", "client.id"}
            or n.startswith(("security.", "ssl.", "sasl."))
        }
        try:
            self._producing = Producing(
                {
                    # The longest that brokers allow unless they are set otherwise.
                    "transaction.timeout.ms": 900_000,
                    **self._properties,
                    "transactional.id": self._id,
                }
            )
            self._producing.producer.init_transactions(self._timeout)
            self._group = Consumer(
                {**shared, "group.id": self._id, "enable.auto.commit": False}, logger=LOG
            )
            marker = self._committed()
        except KafkaException as error:
            self.close()
            raise SinkError(
                f"the committer of topic {self._topic!r} cannot start: {error_text(error)}",
                remedy="check bootstrap_servers, the topic and its rights",
            ) from error
        self._marker, self._marked_at = max(0, marker), time.monotonic()
        return self._marker if marker >= 0 else None

    def _committed(self) -> int:
        """Return the group's offset, below 0 if there is none; wait for a coordinator that starts."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition  # noqa: PLC0415

        starting = (
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        )
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                (partition,) = self._group.committed(
                    [TopicPartition(self._topic, 0)], self._timeout
                )
                if partition.error is not None:
                    raise KafkaException(partition.error)
            except KafkaException as error:
                if error.args[0].code() not in starting or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return int(partition.offset)

    def _in_transaction(self, committables: Iterable[Committable], marker: int) -> None:
        """Commit rows and the marker, or nothing."""
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - optional

        assert self._producing is not None  # noqa: S101 - start() and commit() made it
        producer = self._producing.producer
        try:
            producer.begin_transaction()
            for committable in committables:
                for batch in staged_rows(self._storage, committable):
                    self._producing.produce(batch, self._topic)
            self._producing.flush()
            place = TopicPartition(self._topic, 0, marker)
            group = self._group.consumer_group_metadata()
            arguments = ([place], group, self._timeout)
            _in_time(lambda: producer.send_offsets_to_transaction(*arguments), self._timeout + 5)
            _commit(producer, self._timeout)
        except (KafkaException, SinkError, TimeoutError) as error:
            # The outcome may be unknown. A new producer settles it, and then reads the marker.
            if isinstance(error, TimeoutError):
                self._producing = None
            else:
                with suppress(KafkaException):
                    producer.abort_transaction(self._timeout)
            self.close()
            if isinstance(error, SinkError):
                raise
            raise SinkError(
                f"the transaction of topic {self._topic!r} failed: {error_text(error)}",
                asked=f"checkpoint {marker - 1} of job {self._job}",
                remedy="commit it again, as after a restart: its rows come once",
            ) from error
        except BaseException:
            self.close()
            raise
        self._marker, self._marked_at = marker, time.monotonic()


def _commit(producer: Any, timeout: float) -> None:
    """Commit; tries again while librdkafka says that the same call may succeed."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

    deadline = time.monotonic() + timeout
    while True:
        try:
            producer.commit_transaction(timeout)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _in_time(call: Callable[[], None], seconds: float) -> None:
    """Call in a thread of its own, and leave it behind after a time.

    librdkafka's send_offsets_to_transaction() ignores its timeout while the coordinator of the group is
    away. A producer that hangs there is locked out by the next one.

    Raises:
        TimeoutError: the call did not end in time.
        KafkaException: the call raised it.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            raised.append(error)

    thread = threading.Thread(target=run, name="headgate-kafka-offsets", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"librdkafka did not return within {seconds:g} s")
    if raised:
        raise raised[0]
