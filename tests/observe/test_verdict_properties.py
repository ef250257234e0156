"""What is said of random tasks holds by its definition, whatever their order and the unit of their times."""

from dataclasses import replace
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headgate.observe.record import Task
from headgate.observe.verdict import verdict_of_exchange


def run_of(seed):
    """Make tasks of some seconds. Most of a side do mostly the same, as those of real causes do."""
    random = Random(seed)
    tasks = []
    for role in ("map", "reduce"):
        usual, count = random.randrange(4), random.randint(1, 4)
        has_disk = random.random() < 0.2
        link = random.choice([0, 0.1, 1])
        for number in range(count):
            parts = [random.randint(0, 1500) for _ in range(4)]
            parts[usual if random.random() < 0.8 else random.randrange(4)] += random.randint(
                3000, 9000
            )
            parts[2] *= role == "map"
            wall, host = sum(parts), random.choice("ab")
            tasks.append(
                Task(
                    role,
                    number,
                    random.choice(["running", "done"]),
                    random.randint(1, 5) if host == "a" else random.randint(500, 1000),
                    0,
                    0,
                    *parts,
                    disk_ms=has_disk * random.randint(0, wall),
                    link_ms=int(link * random.randint(0, wall)),
                    host=host,
                )
            )
    return tasks


RUNS = st.integers(0, 1 << 32).map(run_of)
#: Origins of what producers get.
FEEDS = st.sampled_from(["source", "jvm", "exchange", None])


def holds(found, tasks):  # noqa: PLR0911 - one per kind
    """Return True if the definition of a verdict's kind, as docs/progress.md has it, holds for these tasks."""
    producers = [t for t in tasks if t.role == "map" and t.wall_ms >= 1000]
    consumers = [t for t in tasks if t.role == "reduce"]
    longest = max(t.wall_ms for t in consumers)
    named = [
        t for t in tasks if t.role == ("reduce" if found.stage in {"reduce", "sink"} else "map")
    ]
    if (wait := {"disk": "disk_ms", "remote-read": "link_ms"}.get(found.kind)) is not None:
        judged = [t for t in tasks if t.task == found.task]
        return any(2 * getattr(t, wait) > t.wall_ms for t in judged)
    (worst,) = [t for t in named if t.task == found.task] or [None]
    match found.kind:
        case "source-busy" | "jvm-feed" | "chain-feed":
            return 2 * worst.input_ms > worst.wall_ms
        case "map-busy":
            return 2 * worst.function_ms > worst.wall_ms
        case "reduce-busy":
            return worst.function_ms >= 0.6 * longest
        case "skew":
            others = [t.function_ms for t in consumers if t is not worst]
            return others and 2 * max(others) <= worst.function_ms
        case "sink":
            return 2 * worst.blocked_ms > longest
        case "exchange":
            return any(2 * t.emit_ms > t.wall_ms for t in producers)
        case "slow-host":
            spent = {"source": "input_ms", "map": "function_ms", "reduce": "function_ms"}[
                found.stage
            ]
            here = [getattr(t, spent) / t.rows for t in named if t.host == worst.host]
            there = [getattr(t, spent) / t.rows for t in named if t.host != worst.host]
            return len(here) >= 2 <= len(there) and min(here) >= 2 * max(there)
    return False


@settings(deadline=None)
@given(RUNS, FEEDS)
def test_what_is_said_holds_by_its_definition(tasks, feed):
    found = verdict_of_exchange(tasks, 20.0, feed=feed)
    event(f"{found and found.kind}")
    if found is not None and found.stage != "exchange":
        side = [
            task for task in tasks if (task.role == "reduce") == (found.stage in {"reduce", "sink"})
        ]
        assert 2 * sum(task.wall_ms for task in side) >= sum(task.wall_ms for task in tasks)
    assert found is None or holds(found, tasks)


#: Factors of the idle, busy and blocked times of all tasks.
PULLS = ((1, 1, 1), (0, 1, 0), (0, 0, 1), (0, 2, 1))
PARTS = st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))


@settings(deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=20), st.sampled_from(PULLS))
def test_short_consumers_of_a_kept_exchange_are_judged_by_their_sum(parts, pull):
    tasks = [
        Task("reduce", number, "done", input_ms=a * p, function_ms=b * q, blocked_ms=c * r)
        for number, ((a, b, c), (p, q, r)) in enumerate((part, pull) for part in parts)
    ]
    found = verdict_of_exchange(tasks, 20.0)
    total = sum(task.wall_ms for task in tasks)
    busy, taken = (sum(getattr(t, name) for t in tasks) for name in ("function_ms", "blocked_ms"))
    kind = None
    if total >= 2000:
        kind = "sink" if 2 * taken > total else "reduce-busy" if busy >= 0.6 * total else None
    event(f"{kind}")
    assert (found and found.kind) == kind
    assert found is None or found.task is None


@settings(deadline=None)
@given(RUNS, FEEDS, st.randoms(use_true_random=False))
def test_the_order_of_tasks_does_not_matter(tasks, feed, random):
    mixed = list(tasks)
    random.shuffle(mixed)
    there = verdict_of_exchange(tasks, 20.0, feed=feed)
    assert verdict_of_exchange(mixed, 20.0, feed=feed) == there


@settings(deadline=None)
@given(RUNS, st.integers(2, 1000))
def test_a_common_factor_of_all_times_does_not_matter(tasks, factor):
    # Above the minimum times, which the tasks of these runs may be below.
    thread = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
    names = (*thread, "disk_ms", "link_ms")
    long = [replace(task, **{n: 5 * getattr(task, n) for n in names}) for task in tasks]
    longer = [replace(task, **{n: factor * getattr(task, n) for n in names}) for task in long]
    assert verdict_of_exchange(longer, 20.0 * factor) == verdict_of_exchange(long, 20.0)
