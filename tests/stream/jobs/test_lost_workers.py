"""The cause of a job whose worker is lost: what is known of the end of its process, and nothing that is only likely."""

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.kit import stream_jobs
from tests.kit.cgroups import V1, Machine, limited

from headgate import errors
from headgate.sink import FileSink
from headgate.stream.job.lost_worker import lost_worker

LIMIT = 700 << 20


def kill(batch):
    if 0 in batch["id"].to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def leave(batch):
    if 0 in batch["id"].to_pylist():
        os._exit(7)
    return batch


def hoard(batch):
    """Take more memory than the group has."""
    if 0 in batch["id"].to_pylist():
        _HOARD.extend(bytearray(os.urandom(1 << 20)) for _ in range(LIMIT >> 20))
    return batch


_HOARD = []


def start(function, folder, workers=2):
    """Start a job of which one worker ends by a function, while the others wait for its rows."""
    numbers = stream_jobs.numbers(4000, rate=1000)
    counted = numbers.map(function).key_by("key")
    counted = counted.process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    return counted.sink(FileSink(str(folder / "out"))).start(workers=workers, parallelism=workers)


@pytest.mark.parametrize(
    ("function", "end"),
    [(kill, "was killed by signal 9 (SIGKILL)"), (leave, "ended with exit code 7")],
)
def test_the_error_says_how_the_process_of_a_worker_ended(tmp_path, function, end):
    query = start(function, tmp_path)
    with pytest.raises(errors.PeerLostError) as raised:
        query.await_termination(120)
    text = f" of the streaming job is lost: its process {end}"
    assert text in str(raised.value)
    (failure,) = query.status.failures
    assert text in failure.summary
    assert "oom_kill" not in failure.summary or "counts no oom_kill" in failure.summary


@pytest.fixture
def group():
    """Yield a memory group that a process can join."""
    with limited(LIMIT) as folder:
        yield folder


DRIVER = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from tests.stream.jobs import test_lost_workers
query = test_lost_workers.start(test_lost_workers.hoard, Path(sys.argv[2]))
try:
    query.await_termination(120)
except Exception as error:
    print(json.dumps([str(error), query.status.plain()]))
"""


@pytest.mark.soak
def test_a_worker_that_the_kernel_kills_for_its_memory(tmp_path, group):
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(group), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    text, status = json.loads(run.stdout.splitlines()[-1])
    killed = "its process was killed by signal 9 (SIGKILL), its cgroup counts 1 more oom_kill since it began"
    assert killed in text, run.stderr
    assert "the cgroup's limit of memory is 734 MB" in text
    assert "a larger limit of the container's memory" in text
    assert killed in status["failures"][0]["summary"]
    assert max(task["peak_resident_bytes"] for task in status["tasks"]) > 20 << 20


@pytest.mark.parametrize(
    ("end", "kills", "peak", "reason", "remedy"),
    [
        ("", 3, 0, "no reason is known, its cgroup counts no oom_kill since it began", "out-of-memory kill in"),
        ("", 4, 0, "its cgroup counts 1 more oom_kill since it began", "a larger limit of"),
        ("it is gone", None, 9_000_000, "it is gone, its peak resident memory was 9.0 MB when it reported last", "that worker's output"),
        ("", None, 0, "no reason is known", "out-of-memory kill in"),
    ],
)  # fmt: skip
def test_a_cause_claims_only_what_is_counted(tmp_path, end, kills, peak, reason, remedy):
    machine = Machine(tmp_path)
    file = machine.cgroups / "memory/memory.oom_control"
    machine.write(file, V1.format(3))
    group = machine.group(["4:memory:/"])
    if kills is None:
        group = None
    else:
        machine.write(file, V1.format(kills))
    cause = lost_worker(5, end, group=group, peak=peak)
    assert (cause.code, cause.summary) == (
        errors.PeerLostError.code,
        f"worker 5 of the streaming job is lost: {reason}",
    )
    assert remedy in cause.remedy
