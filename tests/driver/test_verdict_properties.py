"""What is said of random tasks holds by its definition, whatever their order and the unit of their times."""

from dataclasses import replace
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headgate.spark.progress.task_stats import TaskStats
from headgate.spark.progress.verdict import kept_verdict, verdict


def run_of(seed):
    """Make tasks of some seconds. Most of a side do mostly the same, as those of real causes do."""
    random = Random(seed)
    tasks = []
    for role in ("map", "reduce"):
        usual, count = random.randrange(4), random.randint(1, 4)
        has_disk, lacks_memory = random.random() < 0.2, random.random() < 0.7
        link = random.choice([0, 0.1, 1])
        for number in range(count):
            parts = [random.randint(0, 1500) for _ in range(4)]
            parts[usual if random.random() < 0.8 else random.randrange(4)] += random.randint(
                3000, 9000
            )
            parts[2] *= role == "map"
            wall, host = sum(parts), random.choice("ab")
            tasks.append(
                TaskStats(
                    role,
                    number,
                    random.choice(["running", "done"]),
                    random.randint(1, 5) if host == "a" else random.randint(500, 1000),
                    0,
                    0,
                    *parts,
                    disk_ms=has_disk * random.randint(0, wall),
                    memory_ms=int(lacks_memory * random.uniform(0.4, 1) * parts[3]),
                    link_ms=int(link * random.randint(0, wall)),
                    io_ms=int(random.choice([0.6, 1]) * random.randint(0, wall)),
                    host=host,
                )
            )
    return tasks


RUNS = st.integers(0, 1 << 32).map(run_of)


def between(producers):
    """Return the kind of what lies between producers that all wait and consumers that are idle."""
    if any(2 * t.link_ms > t.wall_ms for t in producers):
        return "network"
    has_room = all(5 * t.link_ms <= t.wall_ms for t in producers)
    lack = all(2 * t.memory_ms > t.blocked_ms and 2 * t.io_ms <= t.wall_ms for t in producers)
    return "pool" if has_room and lack else "exchange"


def holds(found, tasks, *, is_kept=False):  # noqa: PLR0911 - one per kind
    """Return True if the definition of a verdict's kind, as docs/progress.md has it, holds for these tasks."""
    producers = [t for t in tasks if t.role == "map" and t.wall_ms >= 1000]
    consumers = [t for t in tasks if t.role == "reduce"]
    longest = max(t.wall_ms for t in consumers)
    blocked = [t.blocked_ms > t.wall_ms / 2 for t in producers]
    work = [t.function_ms + t.blocked_ms for t in consumers]
    are_idle = is_kept or 2 * max(work) <= longest
    awaits_consumers = (
        is_kept or any(blocked) or all(t.state == "done" for t in tasks[: len(blocked)])
    )
    named = [
        t for t in tasks if t.role == ("reduce" if found.stage in {"reduce", "sink"} else "map")
    ]
    if (wait := {"disk": "disk_ms", "remote-read": "link_ms"}.get(found.kind)) is not None:
        judged = [t for t in tasks if t.task == found.task]
        return is_kept and any(2 * getattr(t, wait) > t.wall_ms for t in judged)
    (worst,) = [t for t in named if t.task == found.task] or [None]
    match found.kind:
        case "source-busy" | "jvm-feed":
            return are_idle and not any(blocked) and 2 * worst.input_ms > worst.wall_ms
        case "map-busy":
            return are_idle and not any(blocked) and 2 * worst.function_ms > worst.wall_ms
        case "reduce-busy":
            return awaits_consumers and worst.function_ms >= 0.6 * longest
        case "skew":
            others = [t.function_ms for t in consumers if t is not worst]
            return awaits_consumers and others and 2 * max(others) <= worst.function_ms
        case "sink":
            return awaits_consumers and 2 * worst.blocked_ms > longest
        case "network" | "pool":
            return are_idle and all(blocked) and found.kind == between(producers)
        case "exchange":
            emits = [2 * t.emit_ms > t.wall_ms for t in producers]
            return are_idle and (all(blocked) if worst is None else any(emits) and not any(blocked))
        case "slow-host":
            spent = {"source": "input_ms", "map": "function_ms", "reduce": "function_ms"}[
                found.stage
            ]
            here = [getattr(t, spent) / t.rows for t in named if t.host == worst.host]
            there = [getattr(t, spent) / t.rows for t in named if t.host != worst.host]
            return len(here) >= 2 <= len(there) and min(here) >= 2 * max(there)
    return False


@settings(deadline=None)
@given(RUNS, st.booleans())
def test_what_is_said_holds_by_its_definition(tasks, reads_splits):
    found = verdict(tasks, 20.0, reads_splits=reads_splits)
    event(f"{found and found.kind}")
    assert found is None or holds(found, tasks)


SHARES = st.fixed_dictionaries(
    {
        "memory_ms": st.integers(2500, 6000),
        "link_ms": st.integers(0, 2500) | st.integers(0, 10_000),
        "io_ms": st.integers(0, 5500) | st.integers(0, 10_000),
    }
)


@settings(deadline=None)
@given(st.lists(SHARES, min_size=1, max_size=3), st.integers(0, 100))
def test_the_network_or_the_pools_are_named_if_all_else_waits(shares, busy):
    producers = [
        TaskStats("map", number, input_ms=1000, function_ms=3000, blocked_ms=6000, **waits)
        for number, waits in enumerate(shares)
    ]
    consumer = TaskStats(
        "reduce", 0, input_ms=10_000 - 100 * busy, function_ms=90 * busy, blocked_ms=10 * busy
    )
    found = verdict([*producers, consumer], 20.0)
    kind = between(producers)
    event(kind)
    if busy < 50:
        assert found.kind == kind
    else:
        assert found is None or found.kind == "reduce-busy"


@settings(deadline=None)
@given(RUNS, st.booleans())
def test_what_is_said_of_a_kept_exchange_holds_by_its_definition(tasks, reads_splits):
    found = kept_verdict(tasks, 20.0, reads_splits=reads_splits)
    event(f"{found and found.kind}")
    if found is not None and found.stage != "exchange":
        side = [
            task for task in tasks if (task.role == "reduce") == (found.stage in {"reduce", "sink"})
        ]
        assert 2 * sum(task.wall_ms for task in side) >= sum(task.wall_ms for task in tasks)
    calm = [replace(t, blocked_ms=0) if t.role == "map" else t for t in tasks]
    assert found is None or holds(found, calm, is_kept=True)


#: Factors of the idle, busy and blocked times of all tasks.
PULLS = ((1, 1, 1), (0, 1, 0), (0, 0, 1), (0, 2, 1))
PARTS = st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))


@settings(deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=20), st.sampled_from(PULLS))
def test_short_consumers_of_a_kept_exchange_are_judged_by_their_sum(parts, pull):
    tasks = [
        TaskStats("reduce", number, "done", input_ms=a * p, function_ms=b * q, blocked_ms=c * r)
        for number, ((a, b, c), (p, q, r)) in enumerate((part, pull) for part in parts)
    ]
    found = kept_verdict(tasks, 20.0)
    total = sum(task.wall_ms for task in tasks)
    busy, taken = (sum(getattr(t, name) for t in tasks) for name in ("function_ms", "blocked_ms"))
    kind = None
    if total >= 2000:
        kind = "sink" if 2 * taken > total else "reduce-busy" if busy >= 0.6 * total else None
    event(f"{kind}")
    assert (found and found.kind) == kind
    assert found is None or found.task is None


@settings(deadline=None)
@given(RUNS, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_tasks_does_not_matter(tasks, reads_splits, random):
    mixed = list(tasks)
    random.shuffle(mixed)
    for judge in (verdict, kept_verdict):
        there = judge(tasks, 20.0, reads_splits=reads_splits)
        assert judge(mixed, 20.0, reads_splits=reads_splits) == there


@settings(deadline=None)
@given(RUNS, st.integers(2, 1000))
def test_a_common_factor_of_all_times_does_not_matter(tasks, factor):
    # Above the minimum times, which the tasks of these runs may be below.
    thread = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
    names = (*thread, "disk_ms", "memory_ms", "link_ms", "io_ms")
    long = [replace(task, **{n: 5 * getattr(task, n) for n in names}) for task in tasks]
    longer = [replace(task, **{n: factor * getattr(task, n) for n in names}) for task in long]
    for judge in (verdict, kept_verdict):
        assert judge(longer, 20.0 * factor) == judge(long, 20.0)
