"""The slowest stage of kept exchanges on a real Spark: each cause is named, and nothing if nothing is slow."""

import pytest
from tests.kit.own_driver import drive

FUNCTIONS = """
def same(batches):
    yield from batches

def slow(seconds):
    '''Return a function that sleeps so long for every 100 rows.'''
    def function(batches):
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                time.sleep(seconds)
                yield batch.slice(start, 100)
    return function

def hot(batch):
    return [0 if number % 50 else 1 for number in batch.column(0).to_pylist()]

def final(made, action="count"):
    '''Run a query; return the kind and the text of the verdict about its run.'''
    getattr(made, action)()
    eventually(lambda: last_stats().state == "done")
    found = last_stats().verdict
    return [found and found.kind, found and found.text]
"""

CAUSES = (
    FUNCTIONS
    + """
wide = spark.range(0, 20_000, 1, 4).selectExpr("id", "repeat('x', 4000) as s")
sleep = "length(coalesce(reflect('java.lang.Thread', 'sleep', 1L), ''))"
fed = wide.selectExpr(f"id + if(id % 2 = 0, {sleep}, 0) as id", "s")
kept = {"mode": "kept", "num_partitions": 2, "schema": wide.schema}
CASES = {
    "map-busy": lambda: exchange(wide, by="id", map=slow(0.06), **kept),
    "reduce-busy": lambda: exchange(wide, by="id", reduce=slow(0.04), **kept),
    "skew": lambda: exchange(wide, by=hot, reduce=slow(0.04), **kept),
    "jvm-feed": lambda: exchange(fed, by="id", map=same, **kept),
    "sink": lambda: exchange(wide, by="id", reduce=same, **kept).selectExpr(
        f"length(s) + if(id % 2 = 0, {sleep}, 0) as n").distinct(),
    "none": lambda: exchange(wide, by="id", map=same, reduce=same, **kept),
}
CASES["none"]().count()  # workers start
found = {}
for name, case in CASES.items():
    found[name] = [final(case())]
    if found[name][0][0] != name != "none":  # while others use the processors, another stage may be slower
        found[name].append(final(case()))
tell(said=found)
"""
)


@pytest.mark.timeout(600)
def test_each_cause_is_named_and_nothing_if_nothing_is_slow(tmp_path):
    said = drive(CAUSES, "local[4]", tmp_path)["said"]
    for kind, found in said.items():
        kinds = [one for one, _ in found]
        if kind == "none":
            assert kinds in ([None], ["jvm-feed"], ["exchange"]), said  # all on busy processors
        else:
            assert kind in kinds, said
    texts = {kind: text for found in said.values() for kind, text in found}
    assert texts["map-busy"].startswith("map takes ")
    assert texts["jvm-feed"].startswith("waiting for the JVM takes ")
    assert texts["skew"].endswith("98 % of the rows")
    assert texts["sink"].startswith("waiting for the code after it takes ")
