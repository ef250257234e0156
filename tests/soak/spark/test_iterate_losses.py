"""An executor lost in the midst of an iteration: Spark makes its rounds again, and the result is the same."""

import os
import signal
import sys
import time

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import PYSPARK, in_executors
from tests.kit.outcomes import once, wait_for_executors
from tests.soak.spark.test_kept_losses import executor_of_this_worker

from headgate.spark import iterate

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules["tests.soak.spark.test_kept_losses"])

pytestmark = [
    in_executors,
    pytest.mark.skipif(PYSPARK < (4, 1), reason="needs Spark 4.1"),
]
ROWS = 4_000
ROUNDS = 5


@pytest.fixture
def state(spark):
    """Rows whose pages are too many to travel through Spark's shuffle."""
    wait_for_executors(spark)
    yield spark.range(0, ROWS, 1, 3).selectExpr("id", "0L AS n", "repeat('x', 2000) AS s")
    wait_for_executors(spark)


def iterated(state, send, update, delta):
    return iterate(
        state,
        state.selectExpr("id", "(id + 1) % 4000 AS next", "s"),
        by="id",
        send=send,
        update=update,
        message_schema="id long, n long",
        rounds=ROUNDS,
        delta=delta,
        num_partitions=6,
    )


def to_next(rows, links):
    """Send to the row after each one how many messages it got so far, and one more."""
    found = rows.read_all().select(["id", "n"]).join(links.read_all().drop(["s"]), "id")
    numbers = [n + 1 for n in found["n"].to_pylist()]
    return pa.table({"id": found["next"], "n": numbers})


def taken(rows, messages):
    got = {row["id"]: row["n"] for row in messages.read_all().to_pylist()}
    rows = rows.read_all()
    numbers = [got[number] for number in rows["id"].to_pylist()]
    return rows.set_column(1, "n", pa.array(numbers, pa.int64()))


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("where", ["send", "update"])
def test_an_executor_lost_in_the_midst(state, tmp_path, where, delta):
    def killing(function):
        def called(*inputs):
            from pyspark import TaskContext

            made = function(*inputs)
            # Each task calls each function once in a round.
            (tmp_path / f"{TaskContext.get().taskAttemptId()}-call").touch()
            if len(list(tmp_path.glob("*-call"))) > 18 and once(tmp_path, "killed"):
                os.kill(executor_of_this_worker(), signal.SIGKILL)
                time.sleep(60)
            return made

        return called

    send, update = to_next, taken
    if where == "send":
        send = killing(send)
    else:
        update = killing(update)
    rows = iterated(state, send, update, delta).select("id", "n").collect()
    assert (tmp_path / "killed").exists()
    assert sorted(map(tuple, rows)) == [(number, ROUNDS) for number in range(ROWS)]
