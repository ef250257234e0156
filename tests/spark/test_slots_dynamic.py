"""Dynamic allocation: executors come for producers, idle ones go, and the next exchange works."""

import pytest

pytest.importorskip("pyspark")

from own_driver import drive

pytestmark = pytest.mark.timeout(700)

DYNAMIC = {
    "spark__dynamicAllocation__enabled": "true",
    "spark__dynamicAllocation__shuffleTracking__enabled": "true",
    "spark__dynamicAllocation__shuffleTracking__timeout": "3s",
    "spark__dynamicAllocation__minExecutors": "1",
    "spark__dynamicAllocation__initialExecutors": "1",
    "spark__dynamicAllocation__maxExecutors": "3",
    "spark__dynamicAllocation__executorIdleTimeout": "3s",
    "spark__dynamicAllocation__schedulerBacklogTimeout": "1s",
    # A start of an executor takes long on a busy machine.
    "spark__scheduler__maxRegisteredResourcesWaitingTime": "90s",
}


def test_executors_come_for_producers_and_idle_ones_go(tmp_path):
    told = drive(
        """
        from headgate.spark.driver.slots import SlotCounter
        slots = SlotCounter(context).count()
        eventually(lambda: executors() == 1)
        # As many consumers as the only executor has slots.
        first = outcome(exchange(numbers, by="k", num_partitions=2, on_no_slots="error").collect)
        peak = executors()
        eventually(lambda: executors() == 1)

        counts = []
        def slow(batches):
            for number, batch in enumerate(batches):
                if number == 0:
                    time.sleep(12)
                yield batch
        ended = threading.Event()
        def watch():
            while not ended.wait(0.2):
                counts.append(executors())
        threading.Thread(target=watch, daemon=True).start()
        # Producers end early: their executors are idle while the consumers are at work.
        second = outcome(
            exchange(numbers, by="k", num_partitions=2, reduce=slow, on_no_slots="error").collect
        )
        ended.set()
        third = outcome(exchange(numbers, by="k", num_partitions=4).collect)
        tell(slots=slots.number, words=slots.words, first=first, peak=peak,
             second=second, counts=counts, third=third, said=said)
        """,
        "local-cluster[3,2,1024]",
        tmp_path,
        **DYNAMIC,
    )
    assert told["slots"] == 6
    for one in ("first", "second", "third"):
        assert told[one]["right"], told[one]
    assert told["peak"] > 1
    counts = told["counts"]
    most = counts.index(max(counts))
    assert max(counts) > 1
    assert min(counts[most:]) < max(counts), "no executor went while consumers were at work"
