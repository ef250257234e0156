"""A streaming query over a growing folder, stopped and started at random points: each row once."""

import random
import threading
import time

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from tests.kit.number_stream import ROWS, Folder, stream, sunk
from tests.kit.outcomes import rounds
from tests.kit.waiting import wait_until


def wait_while_it_runs(query, condition):
    def holds():
        if query.exception() is not None:
            raise query.exception()
        return condition()

    wait_until(holds, "a batch is committed", 60)


@pytest.mark.timeout(400)  # each start of the query starts four Python processes
@pytest.mark.parametrize("sink", ["parquet", "headgate"])
def test_restarts_at_random_points_lose_and_repeat_nothing(spark, tmp_path, sink):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    folder = Folder(tmp_path / "in")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    stop = threading.Event()

    def keep_adding():
        while not stop.wait(0.1):
            folder.add()

    def start(splits, **trigger):
        writer = stream(spark, folder, maxSplitsPerTrigger=splits).writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("path", str(out))
        return writer.trigger(**trigger).start()

    def commits():
        return len(list((checkpoint / "commits").glob("[0-9]*")))

    folder.add()
    adding = threading.Thread(target=keep_adding)
    adding.start()
    try:
        for _ in range(rounds(4, 10)):
            query = start("3", processingTime="0 seconds")
            done = commits() + dice.randrange(3)
            wait_while_it_runs(query, lambda: commits() >= done)  # noqa: B023
            time.sleep(dice.random() * 0.3)
            query.stop()
    finally:
        stop.set()
        adding.join()
    # Read the backlog, which may be hundreds of files.
    query = start("1000", availableNow=True)
    assert query.awaitTermination(60)
    assert sunk(spark, out) == list(range(folder.files * ROWS))
