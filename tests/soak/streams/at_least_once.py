"""Checks what a job committed, and its state, if some of its barriers were only counted and it started anew.

No row may be missing, and none may be there that is not in the model. Rows may be there several times, and each task's
output and state agree on how often: both are of one snapshot.
"""

from collections import Counter

import numpy as np
from tests.soak.streams import rows
from tests.soak.streams.oracle import Wrong, read, read_state, same, values_of


def check_output(folder, count, seed):
    """Check all committed rows; return how many late rows were late, how many in time, and sessions again."""
    expected = rows.columns(np.arange(count), seed)
    _check_counted(read(folder / "counted"), expected)
    fired = zip(*(read(folder / "timers")[n] for n in ("key", "timestamp")), strict=True)
    due = rows.timer(expected["at"], expected["kind"])
    _each("timers", fired, zip(expected["key"].tolist(), due.tolist(), strict=True))
    return _check_sessions(folder, expected)


def _check_counted(counted, expected):
    names = list(expected)
    found = zip(*(counted[name] for name in names), strict=True)
    _each("counted rows", found, zip(*(expected[name].tolist() for name in names), strict=True))
    # The task counts what it emits, also what it emits again.
    numbers = Counter(zip(counted["key"], counted["number"], strict=True))
    sizes = Counter(counted["key"])
    same("numbers", numbers, Counter((k, n + 1) for k, size in sizes.items() for n in range(size)))


def _check_sessions(folder, expected):
    is_late = expected["kind"] == rows.IS_LATE
    whole = rows.sessions({name: values[~is_late] for name, values in expected.items()})
    alone = rows.sessions({name: values[is_late] for name, values in expected.items()})
    found = Counter(zip(*read(folder / "sessions").values(), strict=True))
    complete = set()
    for one in found:
        inside = [of for of in (*whole, *alone) if _is_part(one, of)]
        if len(inside) != 1:
            raise Wrong(f"sessions: {one} is none, nor a part of one")
        if _is_complete(one, inside[0]):
            complete.add(inside[0])
    missing = set(whole) - complete
    if missing:
        raise Wrong(f"sessions: {len(missing)} are missing, such as {sorted(missing)[:3]}")
    names = ("id", "at", "other", "value")
    late = list(zip(*(read(folder / "late")[name] for name in names), strict=True))
    in_time = {one[5] for one in set(alone) & complete}
    wanted = list(zip(*(expected[name][is_late].tolist() for name in names), strict=True))
    _each("late rows", [*late, *(row for row in wanted if row[0] in in_time)], wanted)
    again = sum(found.values()) - len(complete)
    return len(late), len(in_time), again


def _is_part(one, of):
    """Return True if a result can be that of some rows of a session, each at least once."""
    return (
        one[0] == of[0]
        and of[1] <= one[1]
        and one[2] <= of[2]
        and of[5] <= one[5] <= one[6] <= of[6]
    )


def _is_complete(one, of):
    """Return True if a result can be that of all rows of a session, each at least once."""
    return (*one[:3], *one[5:]) == (*of[:3], *of[5:]) and one[3] >= of[3] and one[4] >= of[4]


def check_state(folders, number, ids, seed):
    """Check that the state of the keyed count has these rows, and has in all parts the same rows as often."""
    count, latest, lists, maps = read_state(folders, number)
    found = {one for of in lists.values() for one in of}
    missing = set(ids.tolist()) - found
    if missing:
        raise Wrong(f"state: {len(missing)} rows are missing, such as {sorted(missing)[:3]}")
    expected = rows.state(rows.columns(np.array(sorted(found), np.int64), seed))
    same("count", count, {key: len(of) for key, of in lists.items()})
    same("latest", latest, {key: one[1] for key, one in expected.items()})
    same(
        "lists",
        {key: sorted(set(of)) for key, of in lists.items()},
        {k: e[2] for k, e in expected.items()},
    )
    same("maps", maps, values_of(expected))


def _each(what, found, wanted):
    """Check that all that is wanted was found, once or more, and nothing else."""
    same(what, Counter(set(found)), Counter(set(wanted)))
