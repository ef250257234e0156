"""The report of real runs: what it has of them, of a run that failed, and that no secret is in it."""

import json
import sys

import pytest
from pyspark.errors import PythonException
from tests.kit.waiting import wait_until

from headgate.errors import HeadgateError
from headgate.observe import runs as observed
from headgate.spark import exchange, last_stats, report, report_file
from headgate.spark.driver import kept_watch


@pytest.fixture
def record(monkeypatch):
    """Give this test a record of its own."""
    found = observed.Runs()
    # The function of this name hides the module in the package.
    for module in (kept_watch, report_file, sys.modules["headgate.spark.exchange"]):
        monkeypatch.setattr(module, "RUNS", found)
    return found


def run_of(out, path, runs=None):
    rows = out.count()
    told = json.loads(report(path, runs).read_text(encoding="utf-8"))
    return rows, told["runs"][0], told


def test_the_report_has_runs_and_no_secret(spark, numbers, secrets, record, tmp_path):
    for _ in range(2):
        out = exchange(numbers, by="k", num_partitions=2, memory="32m", progress="off")
        rows, seen, told = run_of(out, tmp_path / "run.json")
        assert seen["number"] == last_stats().number
        assert (seen["mode"], seen["state"], seen["rows"]) == ("kept", "done", rows)
        assert seen["options"]["memory"] == {"value": "32m", "source": "argument"}
        assert seen["options"]["num_partitions"]["value"] == "2"
        assert seen["versions"]["pyspark"] == spark.version
        assert seen["edges"]["consumers"] == [0, 1]
        assert sum(map(sum, seen["edges"]["bytes"])) > 0
        assert {task["role"] for task in seen["tasks"]} == {"map", "reduce"}
        for task in seen["tasks"]:
            assert task["host"]
            assert task["attempt"] is not None
            assert 0 <= task["started_ms"] <= task["ended_ms"]
        assert abs(seen["started_at"] - told["now"]) < 600
    assert len(told["runs"]) == 2
    page = report(tmp_path / "report.html", 1).read_text(encoding="utf-8")
    assert (page.count("<section"), "Bytes per edge" in page) == (1, True)
    assert last_stats().report(tmp_path / "one.html").read_text(encoding="utf-8")
    for path in tmp_path.iterdir():
        assert not any(secret.hex() in path.read_text(encoding="utf-8") for secret in secrets)


@pytest.mark.soak
def test_a_failed_run_is_in_the_report_with_its_error(numbers, record, tmp_path):
    def bad(batches):
        for _ in batches:
            raise ValueError("<b>no</b>")
        yield from ()

    schema = numbers.schema
    out = exchange(numbers, by="k", map=bad, schema=schema, num_partitions=1, progress="log")
    with pytest.raises((HeadgateError, PythonException)):
        out.collect()

    def has_failed():
        return [run["state"] for run in record.state()["runs"]] == ["failed"]

    wait_until(has_failed, "Spark has written it down", 60)
    page = report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert "<b>no</b>" not in page
