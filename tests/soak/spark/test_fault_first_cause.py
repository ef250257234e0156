"""Tasks that fail at nearly the same time: the first reported cause wins, a derived one never."""

import random
import re
import sys
import time

import pytest
from pyspark import cloudpickle
from tests.spark.masters import in_executors
from tests.spark.outcomes import rounds, wait_for, wait_for_executors

from headgate.spark import exchange, last_stats
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.scheduler.jobs import Jobs

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_executors

#: Roles of the two failing tasks: both producers, both consumers, or one of each.
WHO = [("map", "map"), ("reduce", "reduce"), ("map", "reduce")]


@pytest.fixture(autouse=True)
def all_slots(request):
    """Start each test with all slots, even after a lost executor."""
    if "spark" in request.fixturenames:
        wait_for_executors(request.getfixturevalue("spark"))


class Notes:
    """Failures reported by workers, in order, and the causes of the runs that ended."""

    def __init__(self):
        self.told, self.causes = [], []


@pytest.fixture
def notes(monkeypatch):
    noted, message_of, ended_of = Notes(), Coordinator.message, Jobs.ended

    def message(self, connection, exchange_id, message, now):
        if message.kind == "FAILED":
            noted.told.append((message["code"], message["summary"]))
        message_of(self, connection, exchange_id, message, now)

    def ended(self, run, cause):
        noted.causes.append(cause)
        ended_of(self, run, cause)

    monkeypatch.setattr(Coordinator, "message", message)
    monkeypatch.setattr(Jobs, "ended", ended)
    return noted


def raiser(role, roles, folder, delays):
    """Return a function whose tasks wait for each other and then raise, each after its delay."""

    def all_are_there():
        here = [path.name for path in folder.iterdir()]
        return len(here) >= 2 and all(any(name.startswith(r) for name in here) for r in roles)

    def fail(batches):
        from pyspark import TaskContext

        number = TaskContext.get().partitionId() % 2
        (folder / f"{role}-{number}").touch()
        deadline = time.monotonic() + 30
        while not all_are_there() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(delays[number])
        raise ValueError(f"{role} {number} is wrong")
        yield from batches

    return fail


@pytest.mark.parametrize("turn", range(rounds(3, 60)))
def test_the_first_cause_that_is_told_wins(spark, numbers, tmp_path, notes, turn):
    seed = 1000 + turn
    print(f"seed {seed}")
    dice = random.Random(seed)
    roles = WHO[turn % len(WHO)]
    # Mostly within the same millisecond, sometimes further apart.
    spread = dice.choice([0.0, 0.002, 0.02, 0.3])
    delays = [dice.uniform(0, spread) for _ in range(2)]
    functions = {role: raiser(role, roles, tmp_path, delays) for role in set(roles)}
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        exchange(numbers, by="k", num_partitions=2, schema=numbers.schema, **functions).collect()
    text = str(caught.value)
    assert wait_for(lambda: last_stats().state != "running", 15)
    users = [summary for code, summary in notes.told if code == "HG-6001"]
    cause = notes.causes[0]
    assert cause.code == "HG-6001"
    assert cause.summary == users[0]
    assert {c.summary for c in notes.causes} == {cause.summary}
    assert (last_stats().error, last_stats().error_summary) == ("HG-6001", cause.summary)
    assert re.search("(map|reduce) [01] is wrong", text)
    assert "HG-3" not in text
    assert "HG-2301" not in text
    assert "killed" not in cause.text.lower()
