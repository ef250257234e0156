"""The driver's sweep of files that nobody can ask for any more."""

import threading

import pytest
from tests.driver.test_kept_runs import nobody, nothing, report, session
from tests.kit.waiting import wait_until

from headgate._process import host_id
from headgate.spark.driver.kept import runs as kept_runs
from headgate.spark.driver.kept.runs import KeptRuns


@pytest.fixture
def sweeping(monkeypatch):
    """Runs of an application that is alive, which sweeps all the time."""
    monkeypatch.setattr(kept_runs, "_LOOK", 0.01)
    alive = session()
    alive.sparkContext._jsc = object()
    return KeptRuns(alive, lambda *_: None, nothing, nobody())


def test_the_driver_sweeps_the_files_of_executors_on_its_host(sweeping, monkeypatch):
    swept = []

    def sweep(directories, succeeded):
        swept.append(directories)
        return len(swept) < 3

    monkeypatch.setattr(kept_runs, "sweep", sweep)
    sweeping.reports.add([report(file_bytes=9, directories=("/elsewhere",))])
    sweeping.reports.add([report(directories=("/nothing",), host=host_id())])
    assert not swept
    sweeping.reports.add([report(file_bytes=9, directories=("/here",), host=host_id())])
    wait_until(lambda: len(swept) == 3, "three sweeps, until no file was left", 10)
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)
    assert set(swept) == {("/here",)}


def test_a_file_that_is_reported_during_the_sweep_is_swept_too(sweeping, monkeypatch):
    swept = []

    def sweep(directories, succeeded):
        swept.append(directories)
        if len(swept) == 1:
            sweeping.reports.add([report(file_bytes=9, directories=("/here",), host=host_id())])
        return False

    monkeypatch.setattr(kept_runs, "sweep", sweep)
    sweeping.reports.add([report(file_bytes=9, directories=("/here",), host=host_id())])
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)
    assert len(swept) == 2


def test_the_sweep_ends_with_the_application(sweeping, monkeypatch):
    monkeypatch.setattr(kept_runs, "sweep", lambda *_: True)
    sweeping.reports.add([report(file_bytes=9, directories=("/here",), host=host_id())])
    assert "headgate-sweep" in names()
    sweeping._session.sparkContext._jsc = None
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)


def names():
    return {thread.name for thread in threading.enumerate()}
