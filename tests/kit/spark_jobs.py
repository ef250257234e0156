"""Streaming jobs whose workers are tasks of Spark, for tests."""

import sys
from pathlib import Path

from pyspark import cloudpickle
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate.sink import FileSink

# Executors cannot import the tests.
for _module in (sys.modules[__name__], stream_jobs):
    cloudpickle.register_pickle_by_value(_module)

ROWS = 3000


class Signs:
    """A map that leaves a file named by its process and its executor's daemon."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, batch):
        import os
        from pathlib import Path

        if batch.num_rows:
            Path(self.folder, f"signed-{os.getpid()}-{os.getppid()}").touch()
        return batch


def signed(folder):
    """Return the processes that have signed, and their daemons."""
    names = [one.name.split("-")[1:] for one in Path(folder).glob("signed-*")]
    return {(int(worker), int(daemon)) for worker, daemon in names}


def counted(rows=ROWS, folder=None, **failure):
    """Return a stream of counts by key, at a thousand rows a second, over two exchanges."""
    made = stream_jobs.numbers(rows, rate=1000).key_by("key")
    made = made.process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    if folder is not None:
        made = made.map(Signs(folder), name="signs")
    if failure:
        made = made.map(stream_jobs.FailOnce(**failure), name="fails")
    return made.key_by("id").map(stream_jobs.same, name="again")


def start(stream, spark, folder, **options):
    """Start a job that writes files, with checkpoints."""
    settings = {"parallelism": 2, "checkpoint": str(folder / "checkpoints"), "interval": 0.3}
    job = stream.sink(FileSink(str(folder / "out")), name="files")
    return job.start(spark=spark, **{**settings, **options})


def wait_for_rows(query, folder):
    """Wait until a checkpoint is complete, and rows have come to a worker that signs."""
    stream_jobs.wait_for_a_checkpoint(query, 1)
    wait_until(lambda: signed(folder), "a worker has signed", 60)


def check(spark, folder, rows=ROWS):
    """Check the files of a job against a batch by Spark: each row is there once, and each key's last count."""
    found = spark.read.parquet(str(folder / "out"))
    given = spark.range(rows)
    assert found.select("id").exceptAll(given).isEmpty()
    assert given.exceptAll(found.select("id")).isEmpty()
    counts = found.groupBy("key").max("count")
    right = given.groupBy((given.id % stream_jobs.KEYS).alias("key")).count()
    assert sorted(counts.collect()) == sorted(right.collect())
