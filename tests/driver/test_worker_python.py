"""The Python of the tasks, where it is on the driver's host."""

import sys
from dataclasses import dataclass

import pytest

from headgate.errors import WorkerPythonError
from headgate.spark import worker_python
from headgate.spark.worker_python import check_workers


@dataclass
class Context:
    pythonExec: str  # noqa: N815 - Spark's name
    master: str = "local[2]"


@dataclass
class Session:
    sparkContext: Context  # noqa: N815 - Spark's name


@pytest.fixture
def python(tmp_path):
    """Make a program that stands for the Python of the tasks."""
    worker_python._problem.cache_clear()

    def make(script):
        path = tmp_path / "python3"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


def refused(path, **options):
    with pytest.raises(WorkerPythonError) as caught:
        check_workers(Session(Context(path, **options)))
    return str(caught.value)


def test_the_drivers_own_python_is_not_started(monkeypatch):
    monkeypatch.setattr(worker_python, "_problem", None)
    check_workers(Session(Context(sys.executable)))


def test_a_python_without_the_packages(python):
    path = python(f'exec {sys.executable} -S -E "$@"')
    text = refused(path, master="local-cluster[2,1,1024]")
    assert "cannot import headgate: ModuleNotFoundError: No module named" in text
    assert f"PYSPARK_PYTHON={path}" in text
    assert sys.executable in text
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in text


def test_another_version_of_python(python):
    assert "is Python 3.7, and the driver's is 3." in refused(python("echo 3.7"))


@pytest.mark.parametrize("script", ["exit 7", "echo no such thing >&2; exit 1"])
def test_a_program_that_fails(python, script):
    assert ("exit code 7" if "7" in script else "no such thing") in refused(python(script))


def test_a_program_that_is_missing(tmp_path):
    assert "cannot be started" in refused(str(tmp_path / "python9"))


def test_a_python_that_can_is_tried_once(python, tmp_path):
    path = python(f'echo once >> {tmp_path}/tried; exec {sys.executable} "$@"')
    for _ in range(3):
        check_workers(Session(Context(path)))
    assert (tmp_path / "tried").read_text() == "once\n"


def test_a_python_elsewhere_is_not_known(tmp_path):
    check_workers(Session(Context(str(tmp_path / "python9"), "spark://somewhere:7077")))
