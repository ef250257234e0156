"""Exchanges of exchanges on a real Spark: each run names the slow function, also if it is in the other exchange."""

import pytest
from tests.spark.own_driver import drive

BODY = """
from headgate.observe.runs import RUNS

SMALL = {"num_partitions": 2, "memory": "4m", "segment_size": "64k"}
wide = spark.range(0, 20_000, 1, 2).selectExpr("id", "repeat('x', 4000) as s")

def same(batches):
    yield from batches

def slow(batches):
    for batch in batches:
        for start in range(0, batch.num_rows, 50):
            time.sleep(0.03)
            yield batch.slice(start, 50)

FIRST, LAST = PLACE
first = {"map": FIRST, "map_schema": wide.schema} if FIRST is not None else {}
inner = exchange(wide, by="id", reduce=same, schema=wide.schema, **first, **SMALL)
outer = exchange(inner, by="id", reduce=LAST, schema=wide.schema, **SMALL)
assert outer.count() == 20_000
runs = RUNS.state()["runs"]
eventually(lambda: all(run["state"] == "done" for run in RUNS.state()["runs"]))
tell(runs=[[run["exchange_id"], run["verdict"] and run["verdict"]["text"]] for run in RUNS.state()["runs"]])
"""
CONFS = {
    # A batch of the usual 10,000 rows would hold half of them between two stages, and nobody would wait.
    "spark__sql__execution__arrow__maxRecordsPerBatch": "250",
    "spark__headgate__progress": "log",
}


@pytest.mark.parametrize(
    ("place", "words"),
    [("None, slow", "reduce "), ("slow, same", "map takes")],
    ids=["the last function", "the first function"],
)
def test_both_runs_name_the_slow_function(tmp_path, place, words):
    told = drive(BODY.replace("PLACE", place), "local[6]", tmp_path, **CONFS)
    texts = dict(told["runs"])
    assert len(texts) == 2
    assert None not in texts.values(), texts
    (own,) = [name for name, text in texts.items() if not text.startswith("exchange ")]
    (other,) = [text for name, text in texts.items() if name != own]
    assert other.startswith(f"exchange {own[:4]}: ")
    assert all(words in text for text in texts.values()), texts
