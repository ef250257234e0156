"""Kept exchanges on one host whose consumers get the pages from hosts of executors, as on a cluster."""

import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kit.waiting import wait_until

from headgate.spark.plan import facts


def hosts_of(spark):
    """Return the ids of the processes that serve files of this application's executors."""
    folder = spark.conf.get("spark.local.dir")
    return {int(one.name) for one in Path("/proc").glob("[0-9]*") if _is_host(one, folder)}


def _is_host(process, folder):
    try:
        if b"headgate.spark.tasks.host" not in (process / "cmdline").read_bytes():
            return False
        # A host holds the lock of its executor.
        return any(str(one.readlink()).startswith(folder) for one in (process / "fd").iterdir())
    except OSError:
        return False  # it has ended meanwhile


@contextmanager
def served(spark, monkeypatch):
    """Have exchanges use hosts within the block; end the hosts after it, as other tests expect none."""
    monkeypatch.setattr(facts, "shares_files", lambda _: False)
    yield
    assert hosts_of(spark)
    wait_until(lambda: not _kill_hosts(spark), "the hosts have ended", 10)


def _kill_hosts(spark):
    """Kill the hosts; return those that there were, since one that lives may have started another again."""
    hosts = hosts_of(spark)
    for process in hosts:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return hosts
