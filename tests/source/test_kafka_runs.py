"""Runs of a streaming job that read the new records of Kafka and then end, with librdkafka's mock broker."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow.dataset as ds
import pytest
from tests.kit.mock_kafka import Broker

from headgate.errors import SourceError
from headgate.sink import FileSink
from headgate.source.kafka import KafkaOffsets, KafkaSource
from headgate.stream import JobState, stream


@pytest.fixture(scope="module")
def broker():
    return Broker()


def from_kafka(broker, topic, folder, **options):
    """Return a job that writes the records of a topic."""
    source = KafkaSource(broker.servers, topic, **options)
    return stream(source, name="records").sink(FileSink(str(folder / "out"), mode="append"))


def places(folder):
    """Return the places of the records that were written."""
    return ds.dataset(folder / "out", format="parquet").to_table().select(["partition", "offset"])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("until", [None, KafkaOffsets.latest()], ids=["endless", "to the latest"])
def test_each_run_takes_the_new_records_of_kafka(tmp_path, broker, parallelism, until):
    topic, written = broker.fill(0), 0
    broker.fill(4, topic)
    checkpoint = str(tmp_path / "checkpoints")
    for run, rows in enumerate((10, 1, 0, 30)):
        broker.fill(rows, topic)
        written += rows
        job = from_kafka(broker, topic, tmp_path, until=until)
        query = job.start(
            checkpoint=checkpoint,
            until="now",
            parallelism=1 + (run + parallelism) % 3,
            interval="1ms",
        )
        assert query.await_termination(60)
        assert query.state is JobState.FINISHED
        found = places(tmp_path)
        assert found.group_by(found.column_names).aggregate([]).num_rows == found.num_rows
        assert found.num_rows == written + 4


def test_a_job_of_kafka_goes_on_without_end_and_back(tmp_path, broker):
    topic = broker.fill(8)
    checkpoint = str(tmp_path / "checkpoints")
    from_kafka(broker, topic, tmp_path).run(checkpoint=checkpoint, until="now")
    broker.fill(8, topic)
    with from_kafka(broker, topic, tmp_path).start(checkpoint=checkpoint) as query:
        while sum(task.rows for task in query.status.tasks) < 8:
            time.sleep(0.01)
        query.stop()
    broker.fill(8, topic)
    from_kafka(broker, topic, tmp_path).run(checkpoint=checkpoint, until="now")
    found = places(tmp_path)
    assert found.num_rows == found.group_by(found.column_names).aggregate([]).num_rows == 24


def test_a_topic_that_was_made_anew_is_an_error_of_the_next_run(tmp_path, broker):
    first, second = broker.fill(40), broker.fill(8)
    checkpoint = str(tmp_path / "checkpoints")
    from_kafka(broker, first, tmp_path).run(checkpoint=checkpoint, until="now")
    # The broker of these tests deletes no topic, so the source is given another one under the name.
    job = from_kafka(broker, first, tmp_path)
    plain = KafkaSource._with_ends

    def with_ends(self, splits):
        return plain(self, [replace(split, topic=second) for split in splits])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaSource, "_with_ends", with_ends)
        with pytest.raises(SourceError, match="no record at the offset to read"):
            job.run(checkpoint=checkpoint, until="now", restarts=0)
