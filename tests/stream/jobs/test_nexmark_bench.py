"""The parts of the bench of Nexmark: schedules, the events that close windows, the memory of processes, answers of peers."""

import math
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from benches.nexmark import oracle, scheduled
from benches.nexmark.engines import patterns, surviving
from benches.nexmark.events import START, written
from benches.nexmark.latency import counted
from benches.nexmark.memory import resident
from benches.nexmark.oracle import WrongAnswerError
from benches.nexmark.scheduled import LATE, Arrivals, Schedule, ScheduledBids, arrivals

from headgate.source.nexmark import NexmarkSplit

EVENTS = 100_000


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return written(tmp_path_factory.mktemp("events"), EVENTS)


def is_bid(event):
    return event % 50 >= 4


def test_as_many_bids_are_due_as_events_of_their_kind():
    schedule = Schedule(None, EVENTS, rate=1000, start=100)
    for due in (0, 1, 3, 4, 5, 49, 50, 53, 54, 777):
        bids = sum(map(is_bid, range(due)))
        # In the middle between two events, so that no rounding matters.
        assert schedule.bids_before(100 + due / 1000 + 0.0005) == bids
    assert schedule.bids_before(99) == 0


def test_the_event_that_closes_a_window_is_the_first_bid_behind_its_lateness():
    schedule = Schedule(None, EVENTS, rate=2000, start=7)
    ends = np.array([0, 1, 4, 5, 10, 999, 2000])
    times = np.arange(EVENTS) // 10
    expected = [
        next(n for n in range(EVENTS) if times[n] >= end + LATE and is_bid(n)) for end in ends
    ]
    closing = schedule.closing(pa.array(START + ends, pa.timestamp("ms")))
    assert closing.tolist() == expected
    assert schedule.due(closing).tolist() == [7 + n / 2000 for n in expected]


def test_scheduled_bids_are_those_of_the_files_and_never_early(events):
    schedule = Schedule(events, EVENTS, rate=200_000).from_now(0.1)
    source = ScheduledBids(schedule, ("auction", "dateTime"))
    rows = 0
    for batch, position in source.open_split(NexmarkSplit(1, 2, START, position=10), 2):
        rows += batch.num_rows
        assert position == rows + 10
        bids = schedule.bids_before(scheduled.time.time())
        assert position <= bids // 2
        assert batch.schema == source.schema
    assert rows + 10 == source.rows // 2


def test_a_job_by_schedule_has_the_rows_of_duckdb_and_the_times_of_its_results(events, tmp_path):
    schedule = Schedule(events, EVENTS, rate=100_000).from_now(0.5)
    schedule.job("q5", tmp_path).run(parallelism=2)
    rows = arrivals(tmp_path)
    oracle.check("q5", rows, patterns(events))
    seconds = counted(rows, schedule)
    closed = schedule.closing(rows["window_end"].combine_chunks()) < EVENTS
    # Windows that only the end of the events closes do not count.
    assert len(seconds) == pc.sum(pa.array(closed)).as_py() < len(rows)
    assert seconds.min() > 0


def test_rows_that_arrived_are_there_up_to_a_cut_in_the_middle(tmp_path, capsys):
    sink = Arrivals(tmp_path)
    for number in range(3):
        sink(pa.record_batch({"number": [number] * 1000}))
    (file,) = tmp_path.iterdir()
    assert arrivals(tmp_path)["number"].to_pylist() == [n for n in range(3) for _ in range(1000)]
    os.truncate(file, file.stat().st_size - 100)
    assert arrivals(tmp_path)["number"].to_pylist() == [n for n in range(2) for _ in range(1000)]
    assert "in the middle of a batch" in capsys.readouterr().out


def test_the_memory_of_processes_below_another_one_counts():
    program = "import sys; block = bytearray(64 << 20); print(flush=True); sys.stdin.read()"
    before = resident(os.getpid())
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert resident(os.getpid()) - before > 64 << 20
        process.stdin.close()


def test_a_peer_that_fails_is_named_and_left_out(capsys):
    failed = set()

    def wrong():
        raise WrongAnswerError("two rows are missing")

    assert math.isnan(surviving("flink", failed, wrong))
    assert "flink is not measured: two rows are missing" in capsys.readouterr().out
    # It does not work again.
    assert math.isnan(surviving("flink", failed, lambda: 1 / 0))
    assert surviving("spark", failed, lambda: 2.5) == 2.5
    with pytest.raises(WrongAnswerError):
        surviving("headgate 100", failed, wrong)
    assert failed == {"flink"}


def test_an_answer_without_its_last_rows_has_no_wrong_ones(events):
    bids = pa.parquet.read_table(events / "ordered" / "bid", columns=["auction", "price"])
    answer = bids.filter(pc.equal(pa.array(bids["auction"].to_numpy() % 123), 0))
    part = answer.slice(0, len(answer) // 2)
    assert oracle.check("q2", part, patterns(events), is_whole=False) == len(part) > 0
    with pytest.raises(WrongAnswerError):
        oracle.check("q2", part, patterns(events))
    with pytest.raises(WrongAnswerError, match="1 are wrong"):
        oracle.check("q2", pa.concat_tables([part, bids[:1]]), patterns(events), is_whole=False)


def test_the_last_row_of_each_key_in_a_file_counts(tmp_path):
    file = tmp_path / "rows"
    rows = [(n % 7, n % 3, n) for n in range(1000)]
    lines = ["kind\tkey\tother\tvalue", *("+I\t{}\t{}\t{}".format(*row) for row in rows)]
    file.write_text("\n".join(lines), encoding="utf-8")
    last = {(str(key), str(other)): str(value) for key, other, value in rows}
    table = oracle.last_rows(file, ("key", "other")).to_pylist()
    assert {(row["key"], row["other"]): row["value"] for row in table} == last
    assert len(table) == 21
    assert oracle.last_rows(file, None).num_rows == 1000
