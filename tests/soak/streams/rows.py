"""The rows of a job, and what must become of them, worked out without Headgate.

A row follows from its id and the job's seed. Times are ms. Splits are ranges of ids, and are read in their order::

    on time   STEP * id less a disorder below DISORDER
    behind    up to BEHIND before that: after its session was closed, and within the allowed lateness
    late      before all others, each alone in its session

The watermark behind a batch that ends with an id is STEP * id - DISORDER - 1. It never reaches a row on time of the
same split, so never one of any split: the watermark of a task is the smallest of the splits that feed it. Therefore
rows on time and behind are never dropped, whatever the schedule, and their sessions end the same. If a row is late when
it arrives does depend on how far the other splits are, also after a restart, which begins with no watermark: so each late
row must be once in the output of late rows, or once in that of the sessions.
"""

import numpy as np

START = 1_700_000_000_000
STEP = 10
KEYS, OTHERS = 23, 17
DISORDER = 400
GAP = 600
LATENESS = 8_000
BEHIND = LATENESS - 2 * GAP
PERIOD = 1_000
#: A timer of rows that are not on time: later than all others.
FAR = START + 10**12
ON_TIME, IS_BEHIND, IS_LATE = 0, 1, 2


def columns(ids, seed):
    """Return the columns of rows, as arrays by name."""
    ids = np.asarray(ids, np.int64)
    bits = _mixed(ids.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64))

    def draw(shift, below):
        return ((bits >> np.uint64(shift)) % np.uint64(below)).astype(np.int64)

    dice = draw(0, 100)
    kind = np.where(dice < 3, IS_LATE, np.where(dice < 10, IS_BEHIND, ON_TIME))
    at = START + ids * STEP - draw(8, DISORDER)
    at = np.where(kind == IS_BEHIND, START + ids * STEP - DISORDER - draw(20, BEHIND), at)
    at = np.where(kind == IS_LATE, START - (ids + 1) * 10 * GAP - BEHIND, at)
    # Few keys have many rows.
    key = np.minimum(draw(34, KEYS), draw(44, KEYS))
    return {
        "id": ids,
        "kind": kind,
        "at": at,
        "key": key,
        "other": draw(50, OTHERS),
        "value": draw(13, 1000),
    }


def watermark(last_id):
    """Return the watermark behind a batch that ends with an id."""
    return START + STEP * last_id - DISORDER - 1


def timer(at, kind):
    """Return the times of the timers that rows register."""
    return np.where(kind == ON_TIME, (at // PERIOD + 1) * PERIOD, FAR)


def sessions(rows):
    """Return the sessions of rows: other, start, end, count, sum of the values, smallest and greatest id."""
    found = []
    order = np.lexsort((rows["id"], rows["at"], rows["other"]))
    current = None
    for at in order:
        other, time = int(rows["other"][at]), int(rows["at"][at])
        value, number = int(rows["value"][at]), int(rows["id"][at])
        if current is None or other != current[0] or time > current[2]:
            if current is not None:
                found.append(tuple(current))
            current = [other, time, time + GAP, 0, 0, number, number]
        current[2] = time + GAP
        current[3] += 1
        current[4] += value
        current[5], current[6] = min(current[5], number), max(current[6], number)
    if current is not None:
        found.append(tuple(current))
    return found


def state(rows):
    """Return the state by key after rows: count, latest time, ids, and value by id."""
    found = {}
    for key in np.unique(rows["key"]):
        own = rows["key"] == key
        ids = rows["id"][own].tolist()
        values = dict(zip(ids, rows["value"][own].tolist(), strict=True))
        found[int(key)] = (len(ids), int(rows["at"][own].max()), sorted(ids), values)
    return found


def _mixed(x):
    """Return well mixed bits (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
