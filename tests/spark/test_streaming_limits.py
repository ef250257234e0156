"""The default size of micro-batches, and the refusal of sources that never end."""

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark.errors import PySparkException, StreamingQueryException
from tests.kit.waiting import wait_until


def numbers(spark, **options):
    return spark.readStream.format("headgate").options(source="numbers", **options).load()


@pytest.mark.soak
def test_an_endless_source_fills_micro_batches_with_few_splits(spark, tmp_path):
    """A micro-batch of an endless source has 8 splits, or 1 if the source has a rate."""
    for rate, splits in (({}, 8), ({"rowsPerSecond": "1000"}, 1)):
        batches = []
        query = (
            numbers(spark, batchSize="100", **rate)
            .writeStream.foreachBatch(lambda df, _, seen=batches: seen.append(df.count()))
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{splits}"))
            .start()
        )
        try:
            wait_until(lambda seen=batches: len(seen) > 1, "micro-batches", 60)
        finally:
            query.stop()
        assert set(batches) == {splits * 8 * 100}


def test_available_now_refuses_a_source_that_never_ends(spark, tmp_path):
    def start(df):
        writer = df.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        return query.awaitTermination(60)

    with pytest.raises(StreamingQueryException, match=r"HG-1001[\s\S]*always has more splits"):
        start(numbers(spark))
    reader = spark.readStream.format("headgate")
    socket = reader.options(source="socket", host="127.0.0.1", port="9", schema="id long").load()
    with pytest.raises(StreamingQueryException, match=r"HG-2201[\s\S]*has endless splits"):
        start(socket)


def test_a_misspelt_limit_is_named(spark):
    with pytest.raises(PySparkException, match=r"'maxfilespertrigger' is no option") as caught:
        numbers(spark, maxFilesPerTrigger="4")
    assert "do one  maxSplitsPerTrigger" in str(caught.value)
