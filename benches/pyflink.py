"""PyFlink's side of the bench ``stream``: its Python environment, its cluster, and one measured job.

The job is in ``benches/pyflink_stream.py``. It runs on a cluster of processes, with a TaskManager of one slot
for each parallel subtask: in thread mode all Python of a TaskManager shares one interpreter lock, so that a
mini cluster, which is one process, would be slower.

Pandas functions are not used. They exist in the Table API only, in process mode only, and none of them can keep
a running count by key. As stage 1 in front of the same stage 2, a pandas function adds a round trip to the
Python worker, because the selector of ``key_by`` is Python and needs one too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import environments, flink_cluster
from benches.environments import PeerError, end

MODES = ("process", "thread")
#: PyFlink and those of its packages on which the figures depend, as they work together on Python 3.11.
PACKAGES = (
    "apache-flink==2.3.0",
    "apache-flink-libraries==2.3.0",
    "apache-beam==2.61.0",
    "cloudpickle==2.2.1",
    "grpcio==1.65.5",
    "numpy==2.1.3",
    "pandas==2.2.3",
    "pemja==0.5.7",
    "protobuf==5.29.6",
    "py4j==0.10.9.7",
    "pyarrow==16.1.0",
    "setuptools<81",
)
PROGRAM = Path(__file__).with_name("pyflink_stream.py")
ENDS = Path(__file__).parent / "flink" / "StreamEnds.java"
#: Time limit in seconds of a job.
JOB = 900
#: In both tuned settings. The state of every key fits the cache of the Python workers.
TUNED = {
    "pipeline.object-reuse": "true",
    "python.metric.enabled": "false",
    "python.state.cache-size": "100000",
}
#: Options by name. Bundles exist in process mode only. At the end of a bundle a worker writes the state of
#: each key of it, one request after another, so the largest bundles are the fastest. At a given rate the
#: shortest bundles have the lowest latency until their own cost fills the worker: a bench tries both.
SETTINGS = {
    "default": {},
    "throughput": {
        **TUNED,
        "python.fn-execution.bundle.size": "100000",
        "python.fn-execution.bundle.time": "10000",
    },
    "latency": {
        **TUNED,
        "execution.buffer-timeout.interval": "1 ms",
        "python.fn-execution.bundle.time": "10",
    },
    "latency, longer bundles": {
        **TUNED,
        "execution.buffer-timeout.interval": "5 ms",
        "python.fn-execution.bundle.time": "100",
    },
}


def environment() -> Path:
    """Return the Python of PyFlink's own environment.

    Raises:
        PeerError: It cannot be had.
    """
    return environments.environment("pyflink", PACKAGES)


def measure(
    mode: str,
    records: int,
    rate: float = 0.0,
    *,
    parallelism: int = 1,
    keys: int = 1000,
    settings: str = "default",
    warm_records: int = 0,
    warm_seconds: float = 0.0,
) -> dict[str, Any]:
    """Run the job once, on a cluster of its own, and check its counts.

    Args:
        mode: ``"process"`` or ``"thread"``, Flink's ``python.execution-mode``.
        records: number of records.
        rate: records per second over all subtasks; 0 is as fast as it goes.
        parallelism: number of TaskManagers, and of subtasks of each operator.
        keys: number of keys; below 2**31.
        settings: a name of ``SETTINGS``.
        warm_records: the sinks' clocks start when they have seen so many; in process mode a number of whole
            bundles for each subtask, or the first bundle measured counts too much.
        warm_seconds: latencies are taken of records made so many seconds after the first one; 0 takes none.

    Returns:
        The arguments, and:

        - ``records_per_second`` at the sinks, after the warm-up, and its ``seconds``
        - ``p50_ms`` and ``p99_ms``: from the creation of a record in the source to the sink, by the same
          wall clock; None without ``warm_seconds``
        - ``behind_ms``: how long after it was due the source made its last record. If it is more than some
          milliseconds, backpressure held the source back, and PyFlink does not sustain the rate. Flink's
          buffers fill first, so a short run does not show it.
        - ``versions``: Python and packages

    Raises:
        PeerError: if PyFlink cannot be had, the job fails, it ran in another mode, or records are missing.
        ValueError: if there is no such mode.
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}")
    python = environment()
    libraries = packages(python)
    jars = jars_of(libraries)
    order: dict[str, Any] = {
        "mode": mode,
        "records": records,
        "rate": rate,
        "parallelism": parallelism,
        "keys": keys,
        "warm_records": warm_records,
        "warm_seconds": warm_seconds,
    }
    # The interpreter in a TaskManager does not know of the environment.
    variables = {"PYTHONPATH": str(libraries)}
    with flink_cluster.cluster(jars, parallelism, managed="128m", environment=variables) as cluster:
        pids = cluster.folder / "pids"
        pids.mkdir()
        job = {
            **order,
            "rest": cluster.rest,
            "jar": str(flink_cluster.compiled([ENDS], jars[0].parent, cluster.folder)),
            "pids": str(pids),
            "options": SETTINGS[settings],
        }
        reply = answer(PROGRAM, python, job, cluster, variables)
        workers = {int(path.name) for path in pids.iterdir()}
    _check(order, reply, workers, set(cluster.task_managers))
    seconds = (reply["last"] - reply["first"]) / 1e6
    return {
        **order,
        "settings": settings,
        "records_per_second": reply["measured"] / seconds if seconds else None,
        "seconds": seconds,
        "p50_ms": reply.get("p50_ms"),
        "p99_ms": reply.get("p99_ms"),
        "behind_ms": reply["behind"] / 1000,
        "versions": {"python": "3.11", **dict(p.split("==") for p in PACKAGES if "==" in p)},
    }


def answer(
    program: Path,
    python: Path,
    job: dict[str, Any],
    cluster: flink_cluster.Cluster,
    variables: dict[str, str],
) -> dict[str, Any]:
    """Run a program of PyFlink; return its answer, which is JSON on the last line that it prints.

    Raises:
        PeerError: it failed, or takes too long.
    """
    command = [str(python), "-P", str(program), json.dumps(job)]
    variables = {**os.environ, **variables, "FLINK_LOG_DIR": str(cluster.folder)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=JOB, env=variables
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"the job is not done after {JOB} s\n{cluster.logs()}") from error
    if done.returncode:
        raise PeerError(f"the job failed\n{end(done.stderr)}\n{cluster.logs()}")
    return json.loads(done.stdout.splitlines()[-1])


def _check(
    order: dict[str, Any], answer: dict[str, Any], workers: set[int], managers: set[int]
) -> None:
    counts = (answer["rows"], answer["total"])
    if counts != (order["records"],) * 2:
        raise PeerError(f"rows and sum of counts {counts} of {order['records']} records")
    # Flink falls back to process mode without an error.
    right = workers == managers if order["mode"] == "thread" else not workers & managers
    if not right or len(workers) != order["parallelism"]:
        raise PeerError(
            f"not in {order['mode']} mode: Python ran in {workers}, TaskManagers are {managers}"
        )


def jars_of(libraries: Path) -> list[Path]:
    """Return the jars of Flink in a folder of packages; the first is a pattern."""
    flink = libraries / "pyflink"
    return [flink / "lib" / "*", *(flink / "opt").glob("flink-python-*.jar")]


def packages(python: Path) -> Path:
    """Return the folder of the packages of an environment."""
    folders: Iterator[Path] = (python.parent.parent / "lib").glob("python3.*/site-packages")
    return next(folders)
