"""The verdict on the slowest stage: a table of cases, with no verdict for each unclear one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.observe.record import Task
from headgate.observe.stages import STAGES, stages_of_exchange, times_in
from headgate.observe.verdict import MIN_SECONDS, MOST, verdict_of_exchange, verdict_of_job


def producer(task=0, source=0, map_=0, emit=0, blocked=0, state="running", **more):
    """A producer that ran for ten seconds. The arguments are percentages of that time."""
    return made("map", task, state, (source, map_, emit, blocked), **more)


def consumer(task=0, idle=0, reduce=0, sink=0, rows=0, state="running", **more):
    return made("reduce", task, state, (idle, reduce, 0, sink), rows=rows, **more)


def made(role, task, state, times, rows=0, host="", **waits):
    waits = {f"{name}_ms": 100 * part for name, part in waits.items()}
    return of_times(role, task, (100 * part for part in times), state, rows, host=host, **waits)


def of_times(role, task, times, *about, **more):
    """A task with times in milliseconds."""
    names = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
    return Task(role, task, *about, **dict(zip(names, times, strict=True)), **more)


#: Name -> tasks, options, and the kind, task and text of the verdict. Kind None: no verdict.
TABLE = {
    "no tasks": ([], {}, None, None, ""),
    "the JVM feeds slowly": (
        [producer(0, source=91, map_=9), producer(1, source=70, map_=30)],
        {},
        "jvm-feed",
        0,
        "waiting for the JVM takes 91 % of the time of producer 0",
    ),
    "the exchange before feeds slowly": (
        [producer(0, source=91, map_=9), producer(1, source=70, map_=30)],
        {"feed": "exchange"},
        "chain-feed",
        0,
        "waiting for the exchange before takes 91 % of the time of producer 0",
    ),
    "producers of two origins wait": (
        [producer(0, source=91, map_=9), producer(1, source=70, map_=30)],
        {"feed": None},
        None,
        None,
        "",
    ),
    "reading is slow": (
        [producer(0, source=91, map_=9)],
        {"feed": "source"},
        "source-busy",
        0,
        "reading the source takes 91 % of the time of producer 0",
    ),
    "map is slow": (
        [producer(0, 30, 60, 10), producer(1, 4, 93, 3)],
        {},
        "map-busy",
        1,
        "map takes 93 % of the time of producer 1",
    ),
    "one slow map among waiting ones": (
        [producer(0, 4, 93, 3), *(producer(n, 60, 30, 10) for n in range(1, 5))],
        {},
        None,
        None,
        "",
    ),
    "one slow map, one slow source": (
        [producer(0, 4, 93, 3), producer(1, 93, 4, 3)],
        {},
        None,
        None,
        "",
    ),
    "scattering is slow": (
        [producer(0, 10, 20, 70)],
        {},
        "exchange",
        0,
        "writing rows into pages takes 70 % of the time of producer 0",
    ),
    "one host maps slowly, and the others are busier": (
        [
            *(producer(n, 1, 99, 0, rows=930, host="a") for n in range(2)),
            *(producer(n, 4, 93, 3, rows=310, host="slow") for n in (2, 3)),
        ],
        {},
        "slow-host",
        2,
        "map takes at least 2.8 times as long per row on slow as elsewhere",
    ),
    "one host reads slowly": (
        [
            *(producer(n, 90, 7, 3, rows=300, host="slow") for n in range(2)),
            producer(2, 60, 37, 3, rows=1000, host="a"),
            producer(3, 60, 37, 3, rows=1000, host="b"),
        ],
        {"feed": "source"},
        "slow-host",
        0,
        "reading the source takes at least 5.0 times as long per row on slow as elsewhere",
    ),
    "one host reduces slowly": (
        [
            *(consumer(n, 10, 90, rows=300, host="slow") for n in range(2)),
            *(consumer(n, 60, 40, rows=400, host="a") for n in (2, 3)),
        ],
        {},
        "slow-host",
        0,
        "reduce takes at least 3.0 times as long per row on slow as elsewhere",
    ),
    "one task of a host is as fast as those elsewhere": (
        [
            producer(0, 4, 93, 3, rows=310, host="half"),
            producer(1, 4, 93, 3, rows=930, host="half"),
            *(producer(n, 4, 93, 3, rows=930, host="a") for n in (2, 3)),
        ],
        {},
        "map-busy",
        0,
        "map takes 93 % of the time of producer 0",
    ),
    "a host with one task": (
        [
            producer(0, 4, 93, 3, rows=310, host="slow"),
            *(producer(n, 4, 90, 6, rows=930, host="a") for n in (2, 3)),
        ],
        {},
        "map-busy",
        0,
        "",
    ),
    "a host that is not known": (
        [
            *(producer(n, 4, 93, 3, rows=310, host="slow") for n in range(2)),
            *(producer(n, 4, 90, 6, rows=930, host="a") for n in (2, 3)),
            producer(4, 4, 90, 6, rows=930),
        ],
        {},
        "map-busy",
        0,
        "",
    ),
    "one of the reduces is slow": (
        [consumer(0, 8, 92), consumer(1, 3, 97)],
        {},
        "reduce-busy",
        1,
        "reduce 1 is busy 97 %, all others at least 92 %",
    ),
    "the only reduce is slow": (
        [consumer(0, 3, 97)],
        {},
        "reduce-busy",
        0,
        "reduce 0 is busy 97 %",
    ),
    "skew": (
        [consumer(0, 59, 41, rows=24), consumer(3, 3, 97, rows=76), consumer(2, 80, 20)],
        {},
        "skew",
        3,
        "reduce 3 is busy 97 %, the others at most 41 %; it got 76 % of the rows",
    ),
    "skew, and the others have ended early": (
        [consumer(0, 1, 20, state="done"), consumer(3, 3, 97, rows=5)],
        {},
        "skew",
        3,
        "reduce 3 is busy 97 %, the others at most 20 %; it got 100 % of the rows",
    ),
    "one reduce is busy, the other one waits for the sink": (
        [consumer(0, 3, 90, 7), consumer(1, 15, 20, 65)],
        {},
        "reduce-busy",
        0,
        "",
    ),
    "the sink is slow": (
        [consumer(0, 50, 40, 10), consumer(1, 7, 10, 83)],
        {},
        "sink",
        1,
        "waiting for the code after it takes 83 % of the time of consumer 1",
    ),
    "short producers in waves": (
        [*(producer(n, 1, 4) for n in range(5))],
        {},
        "map-busy",
        None,
        "map takes 80 % of the time of the producers",
    ),
    "too few short producers": (
        [*(producer(n, 1, 4) for n in range(3))],
        {},
        None,
        None,
        "",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_said(name):
    tasks, options, kind, task, said = TABLE[name]
    found = verdict_of_exchange(tasks, 10.0, **options)
    if kind is None:
        assert found is None
        return
    assert (found.kind, found.task) == (kind, task)
    assert found.stage in STAGES
    assert found.advice
    if said:
        assert found.text == said


@pytest.mark.parametrize("name", TABLE)
def test_nothing_is_said_of_the_first_two_seconds(name):
    tasks, options, *_ = TABLE[name]
    assert verdict_of_exchange(tasks, 1.99, **options) is None


MS = st.integers(0, 1 << 62) | st.integers(0, 30_000)
STATES = st.sampled_from(["running", "done", "stopped", "failed", "lost"])
#: Origins of what producers get.
FEEDS = st.sampled_from(["source", "jvm", "exchange", None])
TASKS = st.lists(
    st.builds(
        Task,
        role=st.sampled_from(["map", "reduce"]),
        task=st.integers(0, 50),
        state=STATES,
        rows=MS,
        input_ms=MS,
        function_ms=MS,
        emit_ms=MS,
        blocked_ms=MS,
        disk_ms=MS,
        link_ms=MS,
        host=st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
    unique_by=lambda task: (task.role, task.task),
)


@settings(deadline=None)
@given(TASKS, st.floats(-10, 1e9), FEEDS)
def test_any_numbers_of_workers_are_taken(tasks, seconds, feed):
    kept = verdict_of_exchange(tasks, seconds, feed=feed)
    assert kept is None or (seconds >= MIN_SECONDS and MOST <= kept.share <= 1.0)
    for stage in stages_of_exchange(tasks):
        assert 0.0 <= stage.busiest_share <= 1.0


@st.composite
def halves_at_most(draw, number):
    """Split ten seconds into parts of at most five seconds."""
    times = []
    for left_over in range(number - 1, -1, -1):
        left = 10_000 - sum(times)
        times.append(draw(st.integers(max(0, left - 5_000 * left_over), min(5_000, left))))
    return draw(st.permutations(times))


@settings(deadline=None)
@given(
    st.lists(halves_at_most(4), min_size=1, max_size=6),
    st.lists(halves_at_most(3), min_size=1, max_size=6),
)
def test_nothing_is_said_below_the_thresholds(producers, consumers):
    tasks = [of_times("map", n, times) for n, times in enumerate(producers)]
    tasks += [
        of_times("reduce", n, (idle, reduce, 0, sink))
        for n, (idle, reduce, sink) in enumerate(consumers)
    ]
    assert verdict_of_exchange(tasks, 10.0) is None


@settings(deadline=None)
@given(TASKS)
def test_the_stages_of_a_task_share_its_time(tasks):
    for made in tasks:
        task = replace(made, emit_ms=0) if made.role == "reduce" else made
        for stage, role in STAGES.items():
            assert role != task.role or sum(times_in(stage, task)) == task.wall_ms
    for stage in stages_of_exchange(tasks):
        assert stage.tasks == sum(t.role == STAGES[stage.name] for t in tasks)


@pytest.mark.parametrize(
    ("tasks", "kind", "task"),
    [
        ([], None, None),
        ([producer(0, source=91, map_=9), consumer(0, idle=10, reduce=50)], "jvm-feed", 0),
        ([producer(0, 4, 93, 3), producer(1, 4, 90, 6), consumer(0, reduce=99)], "map-busy", 0),
        ([producer(0, 4, 93, 3), consumer(0, reduce=99), consumer(1, reduce=98)], "reduce-busy", 0),
        (
            [
                producer(0, 4, 60, 3),
                consumer(0, reduce=95, rows=90),
                consumer(1, reduce=5, rows=10),
            ],
            "skew",
            0,
        ),
        ([producer(0, 4, 30, 3), consumer(0, idle=10, reduce=20, sink=70)], "sink", 0),
        ([producer(0, 40, 30, 30), consumer(0, idle=10, reduce=20, sink=20)], None, None),
        ([producer(0, 10, 20, 70, disk=65), producer(1, 10, 20, 70, disk=60)], "disk", 0),
        ([producer(0, 9), consumer(0, idle=70, reduce=30, disk=60)], "disk", 0),
        ([producer(0, 10, 20, 70, disk=45)], "exchange", 0),
        ([consumer(0, idle=70, reduce=30, link=49), consumer(1, idle=70, reduce=30)], None, None),
        ([consumer(0, idle=9, reduce=9), consumer(1, idle=70, link=60)], "remote-read", 1),
        ([producer(0, 9, link=9), consumer(0, idle=80, reduce=20, link=75)], "remote-read", 0),
        ([consumer(0, idle=60, reduce=1, link=60), consumer(1, reduce=70)], "skew", 1),
        ([consumer(0, idle=60, link=60, disk=55)], "disk", 0),
        ([producer(0, 4, 93, 3), consumer(0, idle=80, link=75)], "map-busy", 0),
        ([producer(0, 9), *(consumer(n, 1, 8) for n in range(8))], "reduce-busy", None),
        ([producer(0, 9), *(consumer(n, 1, 2, 6) for n in range(8))], "sink", None),
        ([producer(0, 9), *(consumer(n, 5, 4) for n in range(8))], None, None),
        ([producer(0, 9), *(consumer(n, 0, 9) for n in range(2))], None, None),
    ],
    ids=[
        *("none", "JVM", "map", "reduce", "skew", "sink", "unclear"),
        *("writing files", "reading files", "pages"),
        *("some waits", "other hosts", "other hosts, after maps", "other hosts and reduce"),
        *("other hosts and files", "the longer side"),
        *("short reduces", "sink of short ones", "short and idle", "short and few"),
    ],
)
def test_a_kept_exchange_is_judged_by_its_longer_side(tasks, kind, task):
    found = verdict_of_exchange(tasks, 10.0)
    assert (found and found.kind, found and found.task) == (kind, task)
    assert verdict_of_exchange(tasks, MIN_SECONDS / 2) is None


# Streaming jobs.

#: Three stages in a row.
INPUTS = {"first": (), "middle": ("first",), "last": ("middle",)}


def working(**stages):
    """Two tasks of each stage: the arguments are the busy and the blocked part of the last second."""
    return [
        Task(name, number, input_ms=1000 - busy - blocked, function_ms=busy, blocked_ms=blocked)
        for name, parts in stages.items()
        for number, (busy, blocked) in enumerate(parts if isinstance(parts, list) else [parts] * 2)
    ]


def test_nobody_waits_for_stages_that_are_only_busy():
    tasks = working(first=(900, 0), middle=(900, 50), last=(900, 0))
    assert verdict_of_job(tasks, INPUTS) is None
    assert verdict_of_job([], INPUTS) is None
    assert verdict_of_job([Task("first", 0)], INPUTS) is None, "it has not told anything"


def test_the_last_of_a_chain_of_waits_is_named():
    found = verdict_of_job(working(first=(100, 800), middle=(200, 700), last=(900, 0)), INPUTS)
    assert (found.kind, found.stage, found.share) == ("operator-busy", "last", 0.9)
    text = "middle waits 70 % of the time for last, whose busiest task works 90 % of the time"
    assert found.text == text
    found = verdict_of_job(working(first=(100, 800), middle=(900, 0), last=(200, 0)), INPUTS)
    assert found.stage == "middle"
    assert found.text.startswith("first waits 80 % of the time for middle")


def test_one_busy_task_of_a_stage_is_enough():
    tasks = working(first=(100, 600), middle=[(100, 0), (950, 0)], last=(100, 0))
    found = verdict_of_job(tasks, INPUTS)
    assert (found.kind, found.stage, found.task) == ("operator-skew", "middle", 1)
    assert found.text.endswith("works 95 % of the time, the others at most 10 %")


def test_all_stages_that_wait_for_one_are_named():
    tasks = working(left=(100, 300), right=(100, 500), joined=(800, 0))
    found = verdict_of_job(tasks, {"left": (), "right": (), "joined": ("left", "right")})
    assert found.text.startswith("left and right wait 50 % of the time for joined")
