"""Dynamic allocation: executors start for producers, idle ones end, and the next exchange works."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.own_driver import drive

pytestmark = pytest.mark.timeout(700)

DYNAMIC = {
    "spark__dynamicAllocation__enabled": "true",
    "spark__dynamicAllocation__shuffleTracking__enabled": "true",
    "spark__dynamicAllocation__shuffleTracking__timeout": "3s",
    "spark__dynamicAllocation__minExecutors": "1",
    "spark__dynamicAllocation__initialExecutors": "1",
    "spark__dynamicAllocation__maxExecutors": "3",
    "spark__dynamicAllocation__executorIdleTimeout": "2s",
    "spark__dynamicAllocation__schedulerBacklogTimeout": "1s",
    # The start of an executor takes long on a busy machine.
    "spark__scheduler__maxRegisteredResourcesWaitingTime": "90s",
}


def test_executors_come_for_producers_and_idle_ones_go(tmp_path):
    told = drive(
        """
        from headgate.spark.driver.scheduler.slots import SlotCounter
        slots = SlotCounter(context).count()
        eventually(lambda: executors() == 1)
        # As many consumers as the only executor has slots.
        first = outcome(exchange(numbers, by="k", num_partitions=2).collect)
        peak = executors()
        eventually(lambda: executors() == 1)

        # Producers end. Consumers stay until an executor that was started for producers has ended.
        counts, gone = [], Path.cwd() / "gone"
        def stay(batches):
            yield from batches
            end = time.monotonic() + 120
            while not gone.exists() and time.monotonic() < end:
                time.sleep(0.1)
        ended = threading.Event()
        def watch():
            while not ended.wait(0.2):
                counts.append(executors())
                if counts[-1] < max(counts):
                    gone.touch()
        thread = threading.Thread(target=watch)
        thread.start()
        second = outcome(
            exchange(numbers, by="k", num_partitions=2, reduce=stay, schema=numbers.schema).collect
        )
        went = gone.exists()
        ended.set()
        thread.join()
        third = outcome(exchange(numbers, by="k", num_partitions=4).collect)
        tell(slots=slots.number, words=slots.words, first=first, peak=peak,
             second=second, counts=sorted(set(counts)), went=went, third=third, said=said)
        """,
        "local-cluster[3,2,1024]",
        tmp_path,
        **DYNAMIC,
    )
    assert told["slots"] == 6
    for one in ("first", "second", "third"):
        assert told[one]["right"], told[one]
    assert told["peak"] > 1
    assert max(told["counts"]) > 1
    assert told["went"], "no executor ended while consumers were running"


def test_a_kept_exchange_outlives_executors_that_are_taken_away(tmp_path):
    told = drive(
        """
        def same(batches):
            yield from batches
        wide = numbers.selectExpr("*", "repeat('x', 500) as s")
        def files():
            return len(list((Path.cwd() / "local").rglob("kept-*")))
        eventually(lambda: executors() == 1)
        def slowly(batches):
            time.sleep(2)
            yield from batches
        out = exchange(wide, by="k", num_partitions=6, map=slowly, schema=wide.schema)
        first = outcome(out.collect)
        peak, first_run = executors(), last_stats()
        # Shuffle tracking gives idle executors up after three seconds, and the files go with them.
        eventually(lambda: executors() == 1)
        left = files()
        second = outcome(out.collect)
        second_run = last_stats()
        third = outcome(exchange(out, by="id", num_partitions=4, map=same, schema=wide.schema).collect)
        tell(first=first, peak=peak, second=second, third=third, left=left, mode=first_run.mode,
             ran=first_run.producers, again=second_run.producers,
             files=first_run.file_bytes, said=said)
        """,
        "local-cluster[3,2,1024]",
        tmp_path,
        spark__headgate__mode="kept",
        **DYNAMIC,
    )
    for one in ("first", "second", "third"):
        assert told[one]["right"], told[one]
    assert (told["mode"], told["ran"]) == ("kept", 7)
    assert told["peak"] > 1
    assert told["files"] > 20_000 * 500
    # Only producers of the executors that ended run again.
    assert 0 < told["again"] < 7
    assert told["left"] == 2 * (7 - told["again"]), "a file of pages and one of indexes each"
