"""The number of an application's slots, by its configuration."""

import pytest

from headgate.spark.slots import executors_of

CLUSTER = "local-cluster[3,4,1024]"
DYNAMIC = {"spark.dynamicAllocation.enabled": "True"}
MAX = "spark.dynamicAllocation.maxExecutors"


@pytest.mark.parametrize(
    ("master", "conf", "most", "each"),
    [
        (CLUSTER, {}, 3, 4),
        (CLUSTER, {"spark.task.cpus": "2"}, 3, 2),
        (CLUSTER, {"spark.executor.cores": "2"}, 6, 2),
        (CLUSTER, {"spark.executor.cores": "2", "spark.cores.max": "5"}, 2, 2),
        (CLUSTER, {**DYNAMIC, MAX: "2"}, 2, 4),
        (CLUSTER, {**DYNAMIC, MAX: "9"}, 3, 4),
        (CLUSTER, DYNAMIC, 3, 4),
        ("yarn", {"spark.executor.instances": "5", "spark.executor.cores": "3"}, 5, 3),
        ("yarn", {**DYNAMIC, MAX: "7", "spark.executor.cores": "3"}, 7, 3),
        ("yarn", {**DYNAMIC, "spark.executor.cores": "3"}, None, 3),
        ("spark://host:7077", {}, 0, 0),
        # The cluster may be smaller than the limit.
        ("spark://host:7077", {"spark.executor.cores": "2", "spark.cores.max": "8"}, 0, 2),
        (
            "spark://host:7077",
            {**DYNAMIC, "spark.executor.cores": "2", "spark.cores.max": "8"},
            4,
            2,
        ),
    ],
)
def test_executors_by_master_and_configuration(master, conf, most, each):
    found = executors_of(master, conf)
    assert (found.most, found.each) == (most, each)
    assert str("any number" if most is None else most) in found.origin
