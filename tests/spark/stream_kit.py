"""Streaming jobs whose workers are tasks of Spark, for tests."""

import sys
from pathlib import Path

from pyspark import cloudpickle
from tests.faults.patience import wait_until
from tests.stream.jobs import kit

from headgate.sink import FileSink

# Executors cannot import the tests.
for _module in (sys.modules[__name__], kit):
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
    made = kit.numbers(rows, rate=1000).key_by("key")
    made = made.process(kit.Count, schema=kit.COUNTED, name="count")
    if folder is not None:
        made = made.map(Signs(folder), name="signs")
    if failure:
        made = made.map(kit.FailOnce(**failure), name="fails")
    return made.key_by("id").map(kit.same, name="again")


def start(stream, spark, folder, **options):
    """Start a job that writes files, with checkpoints."""
    settings = {"parallelism": 2, "checkpoint": str(folder / "checkpoints"), "interval": 0.3}
    job = stream.sink(FileSink(str(folder / "out")), name="files")
    return job.start(spark=spark, **{**settings, **options})


def wait_for_a_checkpoint(query, seconds=60):
    """Wait until a checkpoint is complete."""

    def is_complete():
        if query.status.is_over:
            query.await_termination()
        return any(one.status == "complete" for one in query.status.checkpoints)

    wait_until(is_complete, "a checkpoint is complete", seconds)


def wait_for_rows(query, folder):
    """Wait until a checkpoint is complete, and rows have come to a worker that signs."""
    wait_for_a_checkpoint(query)
    wait_until(lambda: signed(folder), "a worker has signed", 60)


def check(spark, folder, rows=ROWS):
    """Check the files of a job against a batch by Spark: each row is there once, and each key's last count."""
    found = spark.read.parquet(str(folder / "out"))
    given = spark.range(rows)
    assert found.select("id").exceptAll(given).isEmpty()
    assert given.exceptAll(found.select("id")).isEmpty()
    counts = found.groupBy("key").max("count")
    right = given.groupBy((given.id % kit.KEYS).alias("key")).count()
    assert sorted(counts.collect()) == sorted(right.collect())
