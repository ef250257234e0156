"""Slots lost for good: a run that does not fit fails within seconds; kept, it succeeds."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.own_driver import drive

pytestmark = pytest.mark.timeout(700)

CLUSTER = "local-cluster[2,2,1024]"


def test_what_does_not_fit_the_slots_that_are_left_is_told_the_numbers(tmp_path):
    told = drive(
        """
        from headgate.spark.driver.scheduler import shares
        since, shares._SINCE = shares._SINCE, (1000, 0)  # consumers hold slots
        eventually(lambda: executors() == 2)
        # A run in the slots of two executors.
        before = outcome(exchange(numbers, by="k", num_partitions=2).collect)
        # One executor is killed, and Spark does not replace it.
        assert scala.killExecutor(scala.getExecutorIds().head())
        eventually(lambda: executors() == 1)
        error = outcome(exchange(numbers, by="k", num_partitions=2).collect)
        kept = outcome(exchange(numbers, by="k", num_partitions=2, mode="kept").collect)
        fits = outcome(exchange(numbers, by="k", num_partitions=1).collect)
        shares._SINCE = since
        shared = outcome(exchange(numbers, by="k", num_partitions=2).collect)
        tell(before=before, error=error, kept=kept, fits=fits, shared=shared, executors=executors(), said=said)
        """,
        CLUSTER,
        tmp_path,
        spark__scheduler__maxRegisteredResourcesWaitingTime="11s",
    )
    assert told["executors"] == 1
    assert told["before"]["right"]
    assert "[HG-2102] all 2 slots are held by consumers" in told["error"]["error"]
    assert "2 of 2 slots held: its own consumers 2; 2 more may come" in told["error"]["error"]
    assert "num_partitions" in told["error"]["error"]
    assert told["kept"]["right"], told["kept"]
    assert told["fits"]["right"], told["fits"]
    assert told["shared"]["right"], told["shared"]
    waits = [line for line in told["said"] if " waits 1" in line]
    assert waits
    assert "for a slot: 2 of 2 slots held: its own consumers 2; 2 more may come" in waits[0]


@pytest.mark.parametrize("how", ["killed", "decommissioned"])
def test_an_executor_that_goes_in_the_middle_of_a_run(how, tmp_path):
    told = drive(
        f"""
        HOW = {how!r}
        """
        """
        from headgate.spark.driver.scheduler import shares
        shares._SINCE = (1000, 0)  # consumers hold slots
        eventually(lambda: executors() == 2)
        def gentle(batches):
            for batch in batches:
                time.sleep(2)
                yield batch
        def jvms():
            found = {}
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit():
                    try:
                        words = (folder / "cmdline").read_bytes().decode().split("\\0")
                    except OSError:
                        continue  # it has just ended
                    if context.applicationId in words and "--executor-id" in words:
                        found[words[words.index("--executor-id") + 1]] = int(folder.name)
            return found
        def leave():
            eventually(lambda: last_stats() is not None and last_stats().producers)
            time.sleep(1)
            first = sorted(jvms())[0]
            if HOW == "killed":
                assert scala.killExecutor(first)
            else:
                os.kill(jvms()[first], signal.SIGPWR)
            gone.append(time.monotonic())
        gone = []
        thread = threading.Thread(target=leave)
        thread.start()
        result = outcome(exchange(numbers, by="k", map=gentle, schema=numbers.schema, num_partitions=2).collect)
        thread.join()
        verdict = time.monotonic() - gone[0]
        after = outcome(exchange(numbers, by="k", num_partitions=1).collect)
        tell(result=result, after=after, gone=gone, verdict=verdict, said=said)
        """,
        CLUSTER,
        tmp_path,
        spark__scheduler__maxRegisteredResourcesWaitingTime="5s",
        spark__decommission__enabled="true",
    )
    result = told["result"]
    print(how, "->", "the right rows" if result["right"] else "HG-2102")
    assert len(told["gone"]) == 1
    # Its two consumers hold both slots.
    assert (result["right"] and how == "decommissioned") or "[HG-2102]" in result["error"]
    assert told["verdict"] < 120
    assert told["after"]["right"], told["after"]
