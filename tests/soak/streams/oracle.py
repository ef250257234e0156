"""Checks the committed output, the state of a savepoint, and the folders of a job, against the naive model."""

import base64
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.soak.streams import rows

from headgate._sealed import unseal
from headgate.stream import read_savepoint
from headgate.stream.state.files import SnapshotFolder


class Wrong(AssertionError):
    """A job that did not do what the model does."""


def check_output(folder, count, seed):
    """Check all committed rows; return how many late rows were late and how many were in time."""
    expected = rows.columns(np.arange(count), seed)
    counted = read(folder / "counted")
    _check_counted(counted, expected)
    fired = Counter(zip(*(read(folder / "timers")[n] for n in ("key", "timestamp")), strict=True))
    due = rows.timer(expected["at"], expected["kind"])
    wanted = Counter(set(zip(expected["key"].tolist(), due.tolist(), strict=True)))
    same("timers", fired, wanted)
    return _check_sessions(folder, expected)


def _check_counted(counted, expected):
    names = list(expected)
    found = Counter(zip(*(counted[name] for name in names), strict=True))
    wanted = Counter(zip(*(expected[name].tolist() for name in names), strict=True))
    same("counted rows", found, wanted)
    numbers = Counter(zip(counted["key"], counted["number"], strict=True))
    sizes = Counter(expected["key"].tolist())
    same("numbers", numbers, Counter((k, n + 1) for k, size in sizes.items() for n in range(size)))


def _check_sessions(folder, expected):
    late = read(folder / "late")
    found = read(folder / "sessions")
    versions = Counter(zip(*found.values(), strict=True))
    twice = [one for one, times in versions.items() if times > 1]
    if twice:
        raise Wrong(f"sessions: {len(twice)} are there twice, such as {twice[:3]}")
    is_late = expected["kind"] == rows.IS_LATE
    certain = {name: values[~is_late] for name, values in expected.items()}
    wanted = rows.sessions(certain)
    missing = [one for one in wanted if one not in versions]
    if missing:
        raise Wrong(f"sessions: {len(missing)} are missing, such as {missing[:3]}")
    alone = rows.sessions({name: values[is_late] for name, values in expected.items()})
    in_time = [one for one in alone if one in versions]
    # Earlier results of a session that grew: a part of it, with fewer rows.
    rest = set(versions) - set(wanted) - set(in_time)
    whole = {}
    for one in wanted:
        whole.setdefault(one[0], []).append(one)
    for one in rest:
        inside = [w for w in whole.get(one[0], ()) if w[1] <= one[1] and one[2] <= w[2]]
        if len(inside) != 1 or one[3] >= inside[0][3]:
            raise Wrong(f"sessions: {one} is none, nor a part of one")
    columns = {name: expected[name][is_late] for name in ("id", "at", "other", "value")}
    ids_in_time = {one[5] for one in in_time}
    others = [
        row
        for row in zip(*(values.tolist() for values in columns.values()), strict=True)
        if row[0] not in ids_in_time
    ]
    same("late rows", Counter(zip(*(late[n] for n in columns), strict=True)), Counter(others))
    return len(others), len(in_time), len(rest)


def check_savepoint(folder, count, seed, check=None):
    """Check that the state of a savepoint is that of the rows which its source has read.

    ``check`` replaces :func:`check_state`.
    """
    fields = unseal((folder / "_metadata").read_bytes())
    source = fields["sources"]["ids"]
    # Behind four bytes with the version.
    enumerator = json.loads(base64.b64decode(source["enumerator"])[4:])
    unread = set()
    for start, end, position, _ in enumerator["splits"]:
        unread |= set(range(start + position, end))
    for _, body in source["splits"]:
        split = json.loads(base64.b64decode(body))
        unread |= set(range(split["start"] + split["position"], split["end"]))
    ids = np.array(sorted(set(range(count)) - unread), np.int64)
    folders = [f"{folder}/{where}" for where, _ in fields["operators"]["count"]["state"]]
    (check or check_state)(folders, fields["checkpoint"], ids, seed)


def check_state(folders, number, ids, seed):
    """Check the state of the snapshots of all tasks of the keyed count."""
    count, latest, lists, maps = read_state(folders, number)
    expected = rows.state(rows.columns(ids, seed))
    same("count", count, {key: one[0] for key, one in expected.items()})
    same("latest", latest, {key: one[1] for key, one in expected.items()})
    same("lists", lists, {key: one[2] for key, one in expected.items()})
    same("maps", maps, values_of(expected))


def read_state(folders, number):
    """Return count, latest time and sorted ids by key, and how often each key has each value by id."""
    tables = read_savepoint(folders, snapshot=number)
    count = dict(_pairs(tables.get("count"), "key", "value"))
    latest = dict(_pairs(tables.get("latest"), "key", "value"))
    lists = {key: sorted(ids) for key, ids in _pairs(tables.get("ids"), "key", "value")}
    maps = Counter(_pairs(tables.get("values"), "key", "map_key", "value"))
    return count, latest, lists, maps


def values_of(state):
    """Return how often each key has each value by id, in a state of the model."""
    return Counter((key, *item) for key, one in state.items() for item in one[3].items())


def check_checkpoints(folder, retained, count, seed, check=None):
    """Check that a folder has only what its retained checkpoints need, and that the last one has all rows.

    ``check`` replaces :func:`check_state`.
    """
    entries = sorted((folder / "log").iterdir())
    fields = [unseal(entry.read_bytes()) for entry in entries]
    strange = [e.name for e in entries if not e.name.removesuffix(".json").isdecimal()]
    if strange:
        raise Wrong(f"checkpoints: the log has {strange}")
    kept = {one["checkpoint"] for one in fields if "operators" in one or "savepoint" in one}
    if not 0 < len(kept) <= retained:
        raise Wrong(f"checkpoints: {len(kept)} are kept, not {retained}: {sorted(kept)}")
    needed = {}
    for one in fields:
        for operator in one.get("operators", {}).values():
            for where, number in filter(None, operator["state"]):
                if where.startswith("tasks/"):
                    needed.setdefault(where, set()).add(number)
    attempts = {where.split("/")[1] for where in needed}
    there = {path.name for path in (folder / "tasks").iterdir()}
    orphans = _check_tasks(folder, needed)
    last = fields[-1]
    if "operators" in last:
        operator = last["operators"]["count"]
        if operator.get("left_out"):  # the job has ended
            return len(there - attempts), orphans
        folders = [f"{folder}/{where}" for where, _ in operator["state"]]
        (check or check_state)(folders, last["checkpoint"], np.arange(count), seed)
    return len(there - attempts), orphans


def _check_tasks(folder, needed):
    """Check that all files are there that snapshots name; return the number of those that none names."""
    orphans = 0
    for path in (folder / "tasks").glob("*/*"):
        where = str(path.relative_to(folder))
        snapshots = SnapshotFolder(str(path))
        numbers = needed.get(where, set())
        if not numbers <= set(snapshots.snapshots()):
            raise Wrong(f"checkpoints: {where} lacks {numbers - set(snapshots.snapshots())}")
        named = set().union(*(snapshots.read_manifest(n).names for n in snapshots.snapshots()))
        files = {name for name in snapshots.names() if not name.endswith(".manifest")}
        if named - files:
            raise Wrong(f"checkpoints: {where} lacks {named - files}")
        orphans += len(files - named)
    return orphans


def read(folder):
    """Return the columns of all committed files, as lists, with the names and order of rows.py."""
    files = list(folder.glob("*.parquet"))
    if not files:
        return {name: [] for name in _NAMES[folder.name]}
    tables = [pq.read_table(path) for path in files]
    table = pa.concat_tables(tables).combine_chunks()
    found = {}
    for name in _NAMES[folder.name]:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        found[name] = column.to_pylist()
    return found


_NAMES = {
    "counted": ("id", "kind", "at", "key", "other", "value", "number"),
    "timers": ("key", "timestamp"),
    "sessions": (
        "other",
        "window_start",
        "window_end",
        "count",
        "sum_value",
        "min_id",
        "max_id",
    ),
    "late": ("id", "at", "other", "value"),
}


def _pairs(table, *names):
    if table is None:
        return []
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def same(what, found, wanted):
    """Check that two counters, or values by key, are the same."""
    if found == wanted:
        return
    if isinstance(found, Counter):
        missing, extra = wanted - found, found - wanted
        raise Wrong(
            f"{what}: {sum(missing.values())} missing, such as {list(missing)[:3]}; "
            f"{sum(extra.values())} too many, such as {list(extra)[:3]}"
        )
    wrong = [key for key in {*found, *wanted} if found.get(key) != wanted.get(key)]
    shown = {key: (found.get(key), wanted.get(key)) for key in wrong[:2]}
    raise Wrong(f"{what}: {len(wrong)} differ, such as (found, wanted) {shown}")
