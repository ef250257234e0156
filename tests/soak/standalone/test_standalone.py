"""A job on separate hosts, with Headgate from an archive and a link that is cut while it runs.

These tests read their configuration from the recipe in `docs/clusters.md`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from standalone_cluster import CORES, ROOT, WORKERS, recipe
from tests.kit import namespaces
from tests.kit.waiting import wait_until

#: The worker whose link is cut.
CUT = WORKERS[1]
#: Seconds for which the link is down.
CUT_SECONDS = 60.0
#: Headgate's default in seconds, and the extra time that a loaded machine needs.
HEARTBEAT_TIMEOUT, SLACK = 10.0, 30.0
#: Seconds within which a cut-off job must end, by itself or soon after the link is back.
BOUND = 120.0

pytestmark = [pytest.mark.timeout(420)]


def sum_below(rows):
    return rows * (rows - 1) // 2


def exact(rows):
    return [rows, rows, sum_below(rows)]


def test_the_demo_has_sparks_rows(cluster):
    # This test must run before the session starts, which holds the slots of all workers.
    status, said = cluster.run(
        ["-m", "headgate", "demo", "--master", cluster.url, "--runs", "1"], timeout=300
    )
    assert status == 0, said
    assert "all 336,776 legs compared row by row: the same by Headgate and by Spark" in said
    assert f"on {cluster.url}" in said
    assert "HG-2101" not in said, "the rows went through Spark's own shuffle"


def test_headgate_is_in_the_archive_and_nowhere_else(cluster, session):
    rows = session.ask("where", partitions=CORES * len(WORKERS))["rows"]
    assert workers_of(rows) == {*WORKERS}
    for row in rows:
        unpacked = Path(row["here"]) / "environment"
        assert row["python"] == str(unpacked / "bin" / "python")
        for name in ("headgate", "native", "pyarrow"):
            assert Path(row[name]).is_relative_to(unpacked), row
        folders = [folder for folder in row["path"].split(os.pathsep) if folder.startswith("/")]
        seen = [folder for folder in folders if (Path(folder) / "headgate").exists()]
        assert len(seen) == 1, folders
        assert Path(seen[0]).is_relative_to(unpacked)
        assert str(ROOT / "python") not in folders


def test_without_the_archive_a_worker_has_no_headgate(cluster):
    python = Path(sys.base_prefix, "bin", "python3")
    process = cluster.network.start(
        CUT,
        [str(python), "-c", "import headgate"],
        env=cluster.environ(CUT),
        cwd=cluster.work(CUT),
        stderr=subprocess.PIPE,
        text=True,
    )
    said = process.communicate(timeout=60)[1]
    assert "No module named 'headgate'" in said


def test_the_recipe_says_how_the_tests_are_configured():
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert recipe()["spark.archives"] == "environment.tar.gz#environment"
    for command in ("-m venv environment", "tar -czf environment.tar.gz -C environment ."):
        assert command in text


def test_a_network_that_fails_half_way_leaves_nothing(monkeypatch):
    if why := namespaces.why_not():
        pytest.skip(why)
    ip = namespaces.ip
    network = namespaces.Network("one", "two")

    def ip_that_fails(*words):
        if words == ("netns", "add", network.name("two")):
            assert len(network.names()) == 2
            raise RuntimeError("no host two")
        return ip(*words)

    monkeypatch.setattr(namespaces, "ip", ip_that_fails)
    with pytest.raises(RuntimeError, match="no host two"), network:
        pass
    assert network.names() == []


def test_what_a_killed_test_left_is_swept_away():
    if why := namespaces.why_not():
        pytest.skip(why)
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = Path(tempfile.mkdtemp(prefix=f"{namespaces.PREFIX}{ended.pid}-"))
    (folder / "file").touch()
    name = f"{namespaces.PREFIX}{ended.pid}-host"
    namespaces.ip("netns", "add", name)
    with subprocess.Popen(["ip", "netns", "exec", name, "sleep", "600"]) as left:
        wait_until(
            lambda: left.pid in namespaces.pids_in(name), "the process is in the namespace", SLACK
        )
        assert name in namespaces.sweep()
        assert left.wait(SLACK) == -9
    assert name not in namespaces.named()
    assert not folder.exists()


def workers_of(rows):
    """Return the workers whose tasks produced the rows."""
    return {worker for row in rows for worker in WORKERS if f"/{worker}/" in row["here"]}


def workers_seen(session):
    """Run a task in each slot; return the workers that ran one."""
    return workers_of(session.ask("where", partitions=CORES * len(WORKERS))["rows"])


def ended(session, **arguments):
    """Run an exchange; return its final answer."""
    session.tell("numbers", **arguments)
    while (answer := session.hear(BOUND))["said"] != "ended":
        pass
    return answer


def threads_of_headgate(pids):
    """Return the names of Headgate's native and Python threads in these processes."""
    found = []
    for pid in pids:
        for comm in Path(f"/proc/{pid}/task").glob("*/comm"):
            try:
                name = comm.read_text().strip()
            except OSError:
                continue  # the thread has ended
            if re.match("headgate", name):
                found.append(f"{name} of {pid}")
    return found
