"""The resources that executors have for the workers of a stage, by the configuration of the application."""

from types import SimpleNamespace

import pytest

from headgate.errors import NotEnoughSlots, OptionError
from headgate.spark.slots import Slots
from headgate.spark.streams.profiles import ExecutorResources
from headgate.stream.graph.nodes import OwnWorkers

GPUS = {"spark.executor.resource.gpu.amount": "2", "spark.executor.resource.gpu.vendor": "some"}
DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


def resources(conf, master="yarn", each=4, executors=3):
    return ExecutorResources(master, conf, Slots(each * executors, "a test", each=each))


def graph(*stages):
    """Return what stands for a job: of each stage its workers, and what each takes."""
    stages_of_job = [
        SimpleNamespace(
            number=at,
            own_workers=number,
            head=SimpleNamespace(uid=f"stage-{at}", workers=OwnWorkers(number, amounts)),
        )
        for at, (number, amounts) in enumerate(stages)
    ]
    without = SimpleNamespace(
        number=len(stages_of_job), own_workers=0, head=SimpleNamespace(uid="other", workers=None)
    )
    return SimpleNamespace(stages=[*stages_of_job, without])


@pytest.mark.parametrize(
    "stages",
    [
        [(6, {"gpu": 1})],
        [(12, {"gpu": 0.5})],
        [(3, {"gpu": 1}), (3, {"gpu": 1})],
        [(3, {"gpu": 2, "cpus": 4})],
        [(100, {})],
    ],
)
def test_what_fits_is_taken(stages):
    resources(GPUS).check(graph(*stages))


@pytest.mark.parametrize(
    ("stages", "error", "message"),
    [
        ([(7, {"gpu": 1})], NotEnoughSlots, "need gpu=7 at a time, and the cluster has 6"),
        ([(4, {"gpu": 1}), (3, {"gpu": 1})], NotEnoughSlots, "need gpu=7 at a time"),
        ([(1, {"gpu": 3})], NotEnoughSlots, "needs gpu=3, and no executor has so much"),
        ([(1, {"cpus": 5})], NotEnoughSlots, "needs cpus=5"),
        ([(1, {"fpga": 1})], OptionError, "asks for 'fpga', which the executors do not have"),
    ],
)
def test_what_does_not_fit_is_refused_in_four_lines(stages, error, message):
    with pytest.raises(error, match=message) as refused:
        resources(GPUS).check(graph(*stages))
    assert len(str(refused.value).split("\n")) == 4
    assert (
        "cpus=4, gpu=2" in refused.value.have or "3 executors with gpu=2 each" in refused.value.have
    )


def test_what_is_not_known_is_left_to_spark():
    resources(DYNAMIC).check(graph((100, {"gpu": 8})))
    resources({}, master="local[4]").check(graph((100, {"gpu": 8})))
    resources(GPUS, "spark://host:7077", each=0).check(graph((100, {"gpu": 1, "cpus": 9})))


def test_cores_of_a_worker_are_slots():
    (two, single, none) = graph((2, {"cpus": 3}), (2, {"gpu": 1})).stages
    there = resources({**GPUS, "spark.task.cpus": "2"})
    assert [there.slots_for(stage) for stage in (two, single, none)] == [4, 2, 0]
    local = resources({}, master="local[4]")
    assert (local.slots_for(two), local.without_resources) == (2, "in Spark's local mode")
    assert there.without_resources == ""
    assert local.profile(two, None) is None
