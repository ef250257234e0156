"""FAIR scheduling: an exchange runs in the pool of its action, next to a job that never ends."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.own_driver import drive

pytestmark = pytest.mark.timeout(700)


@pytest.mark.parametrize("mode", ["pipelined", "kept"])
def test_producers_get_the_share_of_their_actions_pool(tmp_path, mode):
    told = drive(
        """
        def short(rows):
            time.sleep(0.2)
            return rows
        def endless():
            context.setJobGroup("endless", "other work", interruptOnCancel=True)
            try:
                # More tasks than this test waits for. Within a pool Spark prefers the first job.
                context.parallelize(range(9000), 9000).mapPartitions(short).count()
            except Exception:
                ends.append("cancelled")
        ends, ids = [], []
        other = InheritableThread(target=endless)
        other.start()
        pool = scala.taskScheduler().rootPool()
        eventually(lambda: pool.runningTasks() == 4)
        def act():
            context.setLocalProperty("spark.scheduler.pool", "gold")
            job = {"map": lambda batches: batches, "schema": numbers.schema}
            result.update(outcome(exchange(numbers, by="k", num_partitions=1, **job).collect))
            result.update(mode=last_stats().mode)
        result = {}
        action = InheritableThread(target=act)
        action.start()
        action.join(200)
        before = list(ends)
        context.cancelAllJobs()
        other.join(60)
        action.join(60)
        tell(result=result, before=before, ends=ends, said=said)
        """,
        "local[4]",
        tmp_path,
        spark__scheduler__mode="FAIR",
        spark__headgate__mode=mode,
    )
    assert told["result"]["right"], told
    assert told["result"]["mode"] == mode
    assert told["before"] == []
    assert told["ends"] == ["cancelled"]
