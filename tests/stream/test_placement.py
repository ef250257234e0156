"""workers= and resources=: the stages that they make, the worker of each task, and what is refused."""

import pyarrow as pa
import pytest

from headgate.errors import OptionError, StreamError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import ProcessFunction, stream
from headgate.stream.graph.nodes import Shipping
from headgate.stream.graph.placement import own_workers, placed, sentences
from headgate.stream.graph.stages import default_parallelism

NUMBER = pa.schema([("id", pa.int64())])


def same(row):
    return row


class Same(ProcessFunction):
    def process(self, batch, context):
        return batch


def numbers():
    return stream(NumberSequenceSource(0, 9), name="numbers")


def planned(rows, parallelism=2):
    return rows.sink(FunctionSink(print), name="out").plan(parallelism)


def called(rows, name="calls", **options):
    return rows.map_async(same, schema=NUMBER, name=name, **options)


def test_an_operator_with_workers_begins_a_stage_of_which_it_has_all():
    rows = called(numbers().map(same, name="before"), workers=3)
    graph = planned(rows.map(same, name="after").key_by("id").map(same, name="last"))
    names = [stage.name for stage in graph.stages]
    assert names == ["numbers -> before", "calls -> after", "last -> out"]
    assert [stage.own_workers for stage in graph.stages] == [0, 3, 0]
    assert [stage.parallelism for stage in graph.stages] == [2, 3, 2], "a task for each worker"
    assert graph.stages[0].edges[0].shipping is Shipping.REBALANCE
    # Two workers run what is left, and the next three numbers are those of the stage.
    assert placed(graph, 5) == {
        (0, 0): 0,
        (0, 1): 1,
        (1, 0): 2,
        (1, 1): 3,
        (1, 2): 4,
        (2, 0): 0,
        (2, 1): 1,
    }
    assert [stage.number for stage in own_workers(graph, 2).values()] == [1, 1, 1]


def test_without_them_tasks_go_to_all_workers_in_turn():
    graph = planned(numbers().key_by("id").map(same, name="mapped"), 3)
    assert placed(graph, 4) == {task: at % 4 for at, task in enumerate(graph.tasks)}
    assert own_workers(graph, 4) == {}
    assert [*sentences(graph, "here", 4)] == []


@pytest.mark.parametrize(
    ("workers", "most", "tasks"), [(None, 128, 1), (0, 128, 1), (1, 128, 1), (3, 128, 3), (9, 4, 4)]
)
def test_by_default_an_operator_has_a_task_for_each_worker(workers, most, tasks):
    assert default_parallelism(workers, most) == tasks


def test_a_sentence_says_which_workers_have_nothing_to_do():
    graph = planned(called(numbers(), workers=2).key_by("id").map(same, name="last"), 1)
    assert [stage.parallelism for stage in graph.stages] == [1, 2, 1]
    idle = [line for line in sentences(graph, "", 3) if "nothing to do" in line]
    assert len(idle) == 1
    assert idle[0].startswith("1 of the 3 workers have nothing to do, since all stages")
    assert "have 2 tasks together" in idle[0]
    assert "workers=2" in idle[0]
    assert not [line for line in sentences(graph, "", 2) if "nothing to do" in line]


def test_resources_alone_are_those_of_a_worker_for_each_task():
    rows = called(numbers(), resources={"gpu": 1}, parallelism=4)
    graph = planned(rows)
    assert [stage.own_workers for stage in graph.stages] == [0, 4]
    rows = called(numbers(), resources={"gpu": 1})
    assert planned(rows, 3).stages[1].own_workers == 3


def test_tasks_are_dealt_to_the_workers_of_their_stage_alone():
    rows = called(numbers(), workers=2, parallelism=5)
    rows = rows.process(Same, schema=NUMBER, name="second", workers=1)
    graph = planned(rows, 1)
    of = placed(graph, 1 + graph.own_workers)
    by_stage = {
        number: {of[task] for task in graph.tasks if task[0] == number} for number in range(3)
    }
    assert by_stage == {0: {0}, 1: {1, 2}, 2: {3}}


def test_rows_of_a_key_stay_together_where_results_are_remembered():
    for options in ({"memo": "id"}, {"memo": "id", "ordered": "by_key"}):
        rows = called(numbers().key_by("id"), workers=2, **options)
        graph = planned(rows)
        (edge,) = graph.stages[0].edges
        assert (edge.shipping, edge.keys) == (Shipping.HASH, ("id",))
        assert [stage.own_workers for stage in graph.stages] == [0, 2]
        assert graph.stages[1].name == "calls memo -> calls -> out"
    graph = planned(called(numbers(), workers=2, memo="id"))
    assert [edge.shipping for edge in graph.stages[0].edges] == [Shipping.HASH]


def test_more_workers_than_tasks_are_refused():
    rows = called(numbers(), workers=3, parallelism=2)
    with pytest.raises(StreamError, match="workers=3 of calls are more than its tasks") as refused:
        planned(rows)
    assert "workers=2 · parallelism=3" in refused.value.remedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers=0 is outside 1 to"),
        ({"workers": "2"}, "is not a whole number"),
        ({"workers": 1.5}, "is not a whole number"),
        ({"resources": "gpu"}, "resources='gpu' is a str"),
        ({"resources": {}}, "has none"),
        ({"resources": {1: 1}}, "has 1, which is no name"),
        ({"resources": {"my gpu": 1}}, "has 'my gpu', which is no name"),
        ({"resources": {"gpu": 0}}, "has 0 of gpu"),
        ({"resources": {"gpu": 1.5}}, "has 1.5 of gpu"),
        ({"resources": {"gpu": True}}, "has True of gpu"),
        ({"resources": {"gpu": "1"}}, "has '1' of gpu"),
        ({"resources": {"gpu": float("nan")}}, "has nan of gpu"),
        ({"resources": {"cpus": 0.5}}, "has 0.5 of cpus"),
    ],
)
def test_wrong_values_are_refused_at_the_call(options, message):
    for add in (called, lambda rows, **more: rows.process(Same, schema=NUMBER, **more)):
        with pytest.raises(OptionError, match=message) as refused:
            add(numbers(), **options)
        assert len(str(refused.value).split("\n")) == 4


@pytest.mark.parametrize(
    ("resources", "place", "sentence"),
    [
        ({"gpu": 1}, "", "calls -> out has 2 workers of its own, each with gpu=1"),
        (
            {"gpu": 0.5, "cpus": 4},
            "",
            "calls -> out has 2 workers of its own, each with gpu=0.5, cpus=4",
        ),
        (
            {"gpu": 1},
            "on this machine",
            "calls -> out has 2 workers of its own; gpu=1 of each is a label, which nothing enforces on this machine",
        ),
        (None, "on this machine", "calls -> out has 2 workers of its own"),
    ],
)
def test_a_sentence_says_what_a_stage_has(resources, place, sentence):
    graph = planned(called(numbers(), workers=2, resources=resources))
    assert [*sentences(graph, place, 0)] == [sentence]
