"""What the driver puts into the record of runs."""

import json
import sys
from dataclasses import asdict, replace

import pytest
from tests.kit.runs import MadeUp, run_of

from headgate import __version__
from headgate._options import resolve
from headgate.errors import OptionError
from headgate.observe import runs as observed
from headgate.observe.record import MOST_TASKS, Task
from headgate.observe.report.files import read, write
from headgate.observe.runs import Runs
from headgate.spark import last_stats, report_file
from headgate.spark.driver.kept.runs import KeptRun
from headgate.spark.progress.settings import settings_of

#: The function of this name hides it in the package.
exchange_module = sys.modules["headgate.spark.exchange"]


@pytest.fixture
def record(monkeypatch):
    runs = Runs()
    monkeypatch.setattr(report_file, "RUNS", runs)
    return runs


def test_options_have_their_values_in_a_users_words_and_their_sources():
    options = resolve(
        "exchange",
        {"memory": 1 << 26, "map_schema": "a int"},
        {"spark.headgate.consumerTimeout": "4s"},
        {"HEADGATE_COMPRESSION": "lz4"},
    )
    settings = settings_of(options, num_partitions=7)
    assert settings.options["memory"] == {"value": "64m", "source": "argument"}
    assert settings.options["consumer_timeout"] == {"value": "4s", "source": "conf"}
    assert settings.options["compression"] == {"value": "lz4", "source": "environment"}
    assert settings.options["num_partitions"] == {"value": "7", "source": "default"}
    assert settings.options["parallelism"] == {"value": None, "source": "default"}
    assert "map_schema" not in settings.options
    assert set(settings.options) == set(options) - {"map_schema"}
    assert set(settings.versions) == {"headgate", "python", "pyarrow", "pyspark"}
    assert settings.versions["headgate"] == __version__
    by_conf_of_spark = settings_of(
        type(options)(options.values_by_name, {**options.sources, "tls": "spark.authenticate"})
    )
    assert by_conf_of_spark.options["tls"]["source"] == "conf"


def test_statistics_as_plain_values():
    stats = run_of(Task("map", 0, rows=5), Task("reduce", 0))
    told = stats.plain()
    assert told["tasks"] == [asdict(task) for task in stats.tasks]
    assert told["more_tasks"] == []
    assert json.loads(json.dumps(told)) == told
    assert set(told) == {*json.loads(stats.to_json()), "more_tasks"}


def test_many_tasks_are_folded_to_the_worst_and_the_sums():
    about = {"state": "done", "rows": 1, "bytes": 2}
    maps = [Task("map", n, **about, function_ms=n % 977) for n in range(10_000)]
    maps[4] = Task("map", 4)
    told = run_of(*maps, Task("reduce", 0, blocked_ms=1)).plain()
    assert len(told["tasks"]) == MOST_TASKS
    listed = {task["task"]: task for task in told["tasks"] if task["role"] == "map"}
    assert listed[4]["state"] == "running"
    assert [task["role"] for task in told["tasks"]].count("reduce") == 1
    assert sorted(listed) == list(listed), "they stay in their order"
    (more,) = told["more_tasks"]
    assert more["tasks"] + len(listed) == 10_000
    assert more["states"] == {"done": more["tasks"]}
    for name in ("rows", "bytes", "function_ms"):
        total = sum(getattr(task, name) for task in maps)
        assert more[name] + sum(task[name] for task in listed.values()) == total
    worst_left_out = max(t.function_ms for t in maps if t.task not in listed)
    assert worst_left_out <= min(t["function_ms"] for n, t in listed.items() if n != 4)


def test_a_run_is_in_the_record_until_its_end_and_after(record, monkeypatch):
    run = MadeUp(options={"memory": {"value": "64m", "source": "default"}})
    record.began(run.key, lambda: run.look(102.0))
    assert record.newest("kept").options == run.made.options
    (seen,) = record.state()["runs"]
    assert (seen["name"], seen["state"], seen["history"]) == ("78" * 16, "running", [])
    later = observed.time.time() + 5
    monkeypatch.setattr(record, "_now", lambda: later)
    run.made = replace(run.made, rows=run.made.rows + 5)
    assert record.saw(run.key, run.look(103.0)).rows == run.made.rows
    assert [slot["rows"] for slot in record.look(run.key)["history"]] == [run.made.rows]
    assert [slot["rows"] for slot in record.newest("kept").history] == [run.made.rows]
    words = "map raised <ValueError>"
    run.made = replace(run.made, state="failed", error="HG-6001", error_summary=words)
    record.look(run.key)
    run.made = replace(run.made, state="running")
    (seen,) = record.state()["runs"]
    assert (seen["state"], seen["error_summary"]) == ("failed", words)
    assert record._runs[run.key].look is None


def test_the_newest_run_of_an_exchange_is_no_streaming_job(record, monkeypatch):
    monkeypatch.setattr(exchange_module, "RUNS", record)
    assert last_stats() is None
    run = run_of()
    record.began(("kept", run.name, 1), lambda: run)
    record.began(("stream", "clicks", 0), lambda: 1 / 0)
    assert last_stats() == run


def test_the_watch_of_kept_exchanges_tells_of_their_end(record, monkeypatch):
    from tests.driver.test_kept_watch import Context
    from tests.driver.test_kept_watch import Runs as Some
    from tests.kit.leftovers import our_threads
    from tests.kit.waiting import wait_until

    from headgate.spark.driver import kept_watch

    class Ending(Some):
        def live(self):
            self.looks += 1
            return [KeptRun("ab", 1, 1, 7, -10.0, 0.0)] if self.looks < 3 else []

    monkeypatch.setattr(kept_watch.PROGRESS, "show", lambda *_: None)
    ended = []
    monkeypatch.setattr(kept_watch.RUNS, "look", ended.append)
    context = Context()
    kept_watch.KeptWatch(context, Ending())
    wait_until(lambda: ended == [("kept", "ab", 1)], "the end of the run", 20)
    context._jsc = None
    wait_until(lambda: "headgate-notices" not in our_threads(), "the thread ends", 10)


def test_the_calls_of_a_user_write_the_runs_of_the_record(record, tmp_path):
    run = MadeUp()
    record.began(run.key, lambda: run.look(102.0))
    record.began(("kept", "ab", 9), lambda: run_of(Task("map", 0), name="ab"))
    place = report_file.report(tmp_path / "run.json")
    told = json.loads(place.read_text(encoding="utf-8"))
    assert [seen["name"] for seen in told["runs"]] == ["ab", "78" * 16]
    newest = json.loads(report_file.report(place, runs=1).read_text(encoding="utf-8"))
    assert [seen["name"] for seen in newest["runs"]] == ["ab"]
    with pytest.raises(OptionError, match="runs=0 is outside 1 to"):
        report_file.report(place, runs=0)
    page = report_file.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<section") == 2


def test_statistics_write_a_report_of_their_run_alone(tmp_path):
    stats = run_of(Task("map", 0, host="node-a"), name="ab")
    told = json.loads(stats.report(tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [(r["name"], r["history"]) for r in told["runs"]] == [("ab", [])]
    assert "node-a" in stats.report(tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_written_of_the_record_can_be_read_again(record, tmp_path):
    run = run_of(*(Task("map", n) for n in range(1_000)))
    record.began(("kept", "ab", 1), lambda: run)
    assert read(write(record.state(), tmp_path / "run.json"))["runs"][0]["more_tasks"]
