"""What a display draws of a state."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.runs import FAILED, HOSTILE, RUNNING, state, task, wide

from headgate.observe.top import lines
from headgate.observe.view import MAX_SIDE, MAX_TASKS, level, matrix, shares_of_stages, view


def test_the_newest_run_is_drawn_unless_another_is_asked_for():
    assert view(state())["run"]["key"] == RUNNING
    assert view(state(), FAILED)["run"]["key"] == FAILED
    assert view(state(), "gone/9")["run"]["key"] == RUNNING
    assert [run["key"] for run in view(state(), FAILED)["runs"]] == [RUNNING, FAILED, "clicks"]


def test_a_state_without_runs_has_none_to_draw():
    shown = view({"runs": []})
    assert (shown["run"], shown["runs"]) == (None, [])


def test_a_view_is_json_and_leaves_the_state_alone():
    given_state = state()
    shown = view(given_state)
    assert json.loads(json.dumps(shown)) == shown
    assert given_state == state()


@pytest.mark.parametrize(
    ("share", "word"),
    [(None, "N/A"), (0.0, "OK"), (0.1, "OK"), (0.11, "LOW"), (0.5, "LOW"), (0.51, "HIGH")],
)
def test_levels_are_those_of_flink(share, word):
    assert level(share) == word


def test_who_waits_for_whom():
    links = view(state())["run"]["links"]
    assert [(link["text"], link["kind"], link["level"]) for link in links] == [
        ("source waits for map", "pressed", "HIGH"),
        ("map waits for exchange", "pressed", "HIGH"),
        ("exchange waits for reduce", "pressed", "HIGH"),
        ("sink waits for reduce", "starved", "HIGH"),
    ]


def test_stages_that_do_not_wait_and_those_without_times():
    found = state()
    run = found["runs"][0]
    run["history"] = []
    for stage in run["stages"]:
        stage.update(idle_ms=0, busy_ms=1000, back_pressured_ms=0)
    assert {link["kind"] for link in view(found)["run"]["links"]} == {"flows"}
    for stage in run["stages"]:
        stage.update(busy_ms=0)
    assert {link["text"] for link in view(found)["run"]["links"]} == {"no times yet"}


def test_shares_are_of_the_last_seconds_while_a_run_goes_on_and_of_all_its_time_after():
    run = state()["runs"][0]
    assert shares_of_stages(run)["map"] == {"idle": 0.1, "busy": 0.3, "back_pressured": 0.6}
    run["state"] = "done"
    assert shares_of_stages(run)["map"] == {"idle": 0.1, "busy": 0.275, "back_pressured": 0.625}


def test_of_many_tasks_those_that_worked_and_waited_longest_are_drawn():
    found = wide(2000)
    run = view(found)["run"]
    assert (len(run["tasks"]), run["tasks_left_out"]) == (MAX_TASKS, 3000)

    def load(task):
        return task["function_ms"] + task["emit_ms"] + task["blocked_ms"]

    all_loads = sorted(map(load, found["runs"][0]["tasks"]), reverse=True)
    assert [load(task) for task in run["tasks"]] == all_loads[:MAX_TASKS]


def test_each_new_start_has_its_cause():
    found = view(state())["run"]["causes"]
    assert found == ["map 3 on node-b failed: executor 2 was lost"]
    found = view(state(), FAILED)
    assert found["run"]["causes"] == [f"map 0 on node-a failed: {HOSTILE}"]
    assert lines.about(found)[2] == lines.plain(f"again: map 0 on node-a failed: {HOSTILE}")
    about = {"role": "", "task": None, "host": ""}
    given_state = state()
    given_state["runs"][2].update(
        failures=[{"attempt": 1, "error": "HG-3001", "summary": "lost", **about}],
        notices=["windows: 7 rows came too late"],
    )
    again = view(given_state, "clicks")["run"]["causes"]
    assert again == ["attempt 1 ended: [HG-3001] lost", "windows: 7 rows came too late"]


def test_tasks_that_run_and_have_told_nothing_come_first_with_their_time_so_far():
    found = state()
    run = found["runs"][0]
    silent = {"input_ms": 0, "function_ms": 0, "rows": 0, "bytes": 0, "peak_bytes": 0}
    run["tasks"].append(task("map", 9, busy=0, pressed=0, idle=0, **silent | {"started_ms": 2500}))
    first, *others = view(found)["run"]["tasks"]
    assert (first["task"], first["busy"], first["rows"], first["bytes"]) == (9, None, None, None)
    assert (first["wall_ms"], {one["wall_ms"] for one in others}) == (40_000, {1000})
    run["tasks"][-1]["started_ms"] = None
    assert view(found)["run"]["tasks"][0]["wall_ms"] is None
    row = lines.tasks(view(found))[0]
    assert row[:4] + row[7:] == ("map", "9", "node-b", "running", *["-"] * 5, "- so far")
    run["tasks"][-1]["started_ms"] = 2500
    assert lines.tasks(view(found))[0][-1] == "40.0 s so far"
    assert lines.tasks(view(found), "bytes/s")[-1][1] == "9"


def test_names_of_a_folded_matrix_are_spans():
    folded = view(wide(6400))["run"]["matrix"]
    assert (folded["producers"][0], folded["consumers"][-1]) == ("0-199", "6200-6399")
    assert view(state())["run"]["matrix"]["producers"] == ["0", "1"]
    assert view(state(), FAILED)["run"]["matrix"] is None


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.integers(1, MAX_SIDE))
def test_a_folded_matrix_has_all_bytes_and_covers_all_tasks(rows, columns, each, side):
    numbers = [[row * columns + column for column in range(columns)] for row in range(rows)]
    edges = {
        "producers": [n * each for n in range(rows)],
        "consumers": list(range(columns)),
        "producers_each": each,
        "consumers_each": 1,
        "bytes": numbers,
    }
    found = matrix(edges, side)
    assert max(len(found["producers"]), len(found["consumers"])) <= side
    assert sum(map(sum, found["bytes"])) == sum(map(sum, numbers))
    covered = []
    for name in found["producers"]:
        first, _, last = name.partition("-")
        covered += range(int(first), int(last or first) + 1)
    assert covered == list(range(rows * each))


def test_a_streaming_job_is_drawn_as_an_exchange_is_with_links_between_its_stages():
    found = state()
    job = found["runs"][2]
    times = {"tasks": 1, "busiest": 0, "busiest_share": 0.5}
    job["stages"] = [
        {
            "name": "left",
            "idle_ms": 0,
            "busy_ms": 20,
            "back_pressured_ms": 80,
            "inputs": [],
            **times,
        },
        {
            "name": "right",
            "idle_ms": 9,
            "busy_ms": 91,
            "back_pressured_ms": 0,
            "inputs": [],
            **times,
        },
        {
            "name": "joined",
            "idle_ms": 5,
            "busy_ms": 95,
            "back_pressured_ms": 0,
            "inputs": ["left", "right"],
            **times,
        },
    ]
    run = view(found, "clicks")["run"]
    assert run["title"] == "streaming job clicks, attempt 2"
    assert [link["text"] for link in run["links"]] == ["left waits for joined", "nobody waits"]
    assert [one["checkpoint"] for one in run["checkpoints"]] == [7, 8, 9]
    assert run["tasks"][0]["busy"] == 25 / 55
