"""An exchange on Spark whose local directory is on a slow disk: the verdict names the disk."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SLOW = Path(__file__).with_name("slow_files.py")

#: Runs a kept exchange of some 100 MB with the local directory that it is given, and prints its verdict as JSON.
PROGRAM = f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
import numpy as np, pyarrow as pa
from tests.kit import sessions
from headgate.spark import exchange, last_stats
folder = Path(sys.argv[1])
spark = sessions.builder("local[2]", "disk", folder).config("spark.headgate.memory", "16m").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
def wide(batches):
    dice = np.random.default_rng(0)
    for batch in batches:
        for _ in range(batch.num_rows):
            yield pa.record_batch({{"k": dice.integers(0, 1000, 100_000), "x": dice.random(100_000)}})
rows = spark.range(0, 60, 1, 2)
out = exchange(rows, by="k", map=wide, schema="k long, x double", num_partitions=2, mode="kept")
assert out.selectExpr("count(x)").collect()[0][0] == 6_000_000
found = last_stats()
print("VERDICT", json.dumps([found.verdict.kind, found.verdict.text] if found.verdict else None))
print("TASKS", [(t.role, t.wall_ms, t.disk_ms) for t in found.tasks])
spark.stop()
"""


def verdict(folder):
    """Run the program; return the kind and the text of its verdict."""
    run = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=400, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("VERDICT"))
    return json.loads(line.removeprefix("VERDICT"))


@pytest.fixture
def slow_folder(tmp_path):
    """A folder on a file system that takes 50 ms for each read or write."""
    with mounted(tmp_path, "0.05") as folder:
        yield folder


@pytest.fixture
def folder_without_links(tmp_path):
    """A folder on a file system that has no hard links, as some of FUSE and of Windows have none."""
    with mounted(tmp_path, "0", "--without-links") as folder:
        yield folder


@contextmanager
def mounted(tmp_path, *options):
    """Mount a file system of FUSE."""
    if shutil.which("fusermount3") is None or not Path("/dev/fuse").exists():
        pytest.skip("there is no FUSE here")
    behind, mount = tmp_path / "behind", tmp_path / "slow"
    behind.mkdir()
    mount.mkdir()
    command = [sys.executable, str(SLOW), str(behind), str(mount), *options]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: mount.is_mount() or process.poll() is not None, "a mount", 20)
        assert process.poll() is None
        yield mount
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=True)
        process.wait(20)


@pytest.mark.timeout(300)
def test_an_exchange_is_kept_on_a_disk_without_hard_links(folder_without_links):
    probe = folder_without_links / "probe"
    probe.touch()
    with pytest.raises(PermissionError):
        (folder_without_links / "link").hardlink_to(probe)
    verdict(folder_without_links)


@pytest.mark.timeout(600)
def test_a_slow_disk_is_named(slow_folder):
    kind, text = verdict(slow_folder)
    assert kind == "disk"
    assert text.startswith(
        ("waiting for files to be written takes", "waiting for files to be read takes")
    )


@pytest.mark.timeout(300)
def test_a_usual_disk_is_not_named(tmp_path):
    found = verdict(tmp_path)
    assert found is None or found[0] != "disk"
