"""The doctor on a real session: it says what is so, and leaves nothing."""

import os
import sys
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.masters import MASTER, in_executors

from headgate import errors
from headgate.spark import doctor
from headgate.spark.doctor import crew
from headgate.spark.doctor.findings import Finding
from headgate.spark.doctor.gather import Jobs

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Seconds that no test needs, also on a machine that is busy.
LONG = 600


def by_check(report):
    return {one.check: one for one in report.findings}


def test_a_sound_application(spark):
    def count(context):
        return [Finding("HG-1201", "ok", "count", f"{len(context.executors)} processes")]

    report = doctor(spark, size="4m", seconds=LONG, checks=[count])
    found = by_check(report)
    assert found["count"].summary.endswith(" processes")
    assert report.level != "fail", str(report)
    assert report.master == MASTER
    if MASTER.startswith("local-cluster"):
        assert found["executors"].summary == "2 of 2 executors answered"
        assert found["driver"].summary.startswith("2 of 2 executors reach the driver at ")
        assert found["pairs"].summary == "2 of 2 pairs reach each other"
        assert found["speed"].summary.startswith("2 pairs within a host; the slowest, ")
        assert found["headgate"].summary.endswith("on the driver and 2 of 2 executors")
    else:
        assert found["pairs"].summary == "two processes of the executor reach each other"
    for check in (
        "headgate",
        "versions",
        "driver",
        "pairs",
        "tls",
        "limits",
        "memfd",
        "scheduling",
    ):
        assert found[check].level == "ok", found[check]
    assert "unknown" not in str(report)


@in_executors
@pytest.mark.skipif("PYTHONPATH" in os.environ, reason="every Python finds Headgate by PYTHONPATH")
def test_executors_without_headgate_are_named(spark, monkeypatch):
    bare = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    report = doctor(spark, seconds=LONG)
    found = by_check(report)
    assert report.exit_code == 2
    assert (found["headgate"].code, found["headgate"].level) == ("HG-1102", "fail")
    assert f"cannot import headgate in {bare}: ModuleNotFoundError" in found["headgate"].summary
    assert "0 (127.0.0.1), 1 (127.0.0.1)" in found["headgate"].summary
    assert found["limits"].level == "ok"
    assert "pairs" not in found
    with pytest.raises(errors.WorkerPythonError):
        report.raise_for_failure()


@in_executors
def test_executors_without_a_python_are_named(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    found = by_check(doctor(spark, size=0, seconds=LONG))
    assert (found["executors"].code, found["executors"].level) == ("HG-1102", "fail")
    assert "/nowhere/python" in found["executors"].summary


def test_busy_executors_are_silent_and_it_ends_in_time(spark, tmp_path):
    running = tmp_path / "running"
    running.touch()

    def sleep(numbers):
        while running.exists():
            time.sleep(0.05)
        return numbers

    with Jobs(spark.sparkContext, "busy") as busy:
        for number in range(4):
            busy.start(number, "", sleep)
        report = doctor(spark, seconds=5)
        running.unlink()
    found = by_check(report)
    assert report.exit_code == 2
    assert found["executors"].code == "HG-1201"
    assert "it may be busy with other tasks" in found["executors"].summary


def test_an_interrupt_leaves_nothing(spark, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(crew, "_gathered", interrupt)
    with pytest.raises(KeyboardInterrupt):
        doctor(spark, seconds=LONG)


def test_wrong_arguments_are_refused_before_anything_runs(spark):
    for wrong in (
        {"size": "much"},
        {"size": -1},
        {"seconds": 1},
        {"memory": "1k"},
        {"memori": "1m"},
    ):
        with pytest.raises((errors.OptionError, TypeError)):
            doctor(spark, **wrong)
