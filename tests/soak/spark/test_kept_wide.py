"""Kept exchanges that are large in one way: a thousand partitions, a chain of ten, and a disk that is too small."""

import contextlib
import os
import subprocess

import pytest
from tests.kit.own_driver import drive

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_thousand_partitions_on_four_slots(tmp_path, adaptive):
    told = drive(
        """
        def same(batches):
            yield from batches
        out = exchange(numbers, by="k", map=same, num_partitions=1000, schema=numbers.schema)
        def placed(df):
            return sorted(map(tuple, df.selectExpr("spark_partition_id() as p", "*").collect()))
        found = placed(out)
        stats = last_stats()
        tell(same=found == placed(numbers.repartition(1000, "k")), rows=len(found),
             mode=stats.mode, consumers=stats.consumers)
        """,
        "local[4]",
        tmp_path,
        spark__headgate__mode="kept",
        spark__sql__adaptive__enabled=adaptive,
    )
    assert told == {"same": True, "rows": 20_000, "mode": "kept", "consumers": 1000}


def test_a_chain_of_ten_exchanges_in_a_loop_on_two_slots(tmp_path):
    told = drive(
        """
        def one_more(batches):
            import pyarrow as pa
            import pyarrow.compute as pc
            for batch in batches:
                more = pc.add(batch["k"], 1)
                yield pa.record_batch({"id": batch["id"], "k": more})
        out = numbers
        for _ in range(10):
            out = exchange(out, by="k", map=one_more, num_partitions=3, schema=numbers.schema)
        rows = out.collect()
        tell(right=sorted((r["id"], r["k"]) for r in rows) == [(n, n % 100 + 10) for n in range(ROWS)],
             mode=last_stats().mode)
        """,
        "local[2]",
        tmp_path,
        spark__headgate__mode="kept",
    )
    assert told == {"right": True, "mode": "kept"}


@pytest.fixture
def small_disk(tmp_path):
    """Yield a folder on a disk of 24 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a small disk")
    try:
        yield folder
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_full_disk_is_an_error_with_its_numbers_and_leaves_nothing(tmp_path, small_disk, master):
    told = drive(
        """
        def same(batches):
            yield from batches
        disk = Path.cwd() / "disk"
        # One producer: of two, Spark's own write may be the first that finds the disk full.
        wide = numbers.coalesce(1).selectExpr("*", "repeat(string(id), 600) as s")
        def free():
            return os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        spark.range(10).repartition(2).count()
        before = free()
        out = exchange(wide, by="k", num_partitions=2, map=same, schema=wide.schema)
        failed = outcome(out.collect)
        del out
        def files():
            return [[str(path), path.stat().st_size] for path in disk.rglob("kept-*")]
        def is_free():
            import gc
            gc.collect()
            context._jvm.System.gc()
            return not files() and free() > before - 2_000_000
        eventually(is_free, 60)
        left = files()
        works = outcome(exchange(numbers, by="k", num_partitions=2, map=same, schema=numbers.schema).collect)
        tell(error=failed["error"], left=left, before=before, after=free(), works=works)
        """,
        master,
        tmp_path,
        spark__headgate__mode="kept",
        spark__local__dir=str(small_disk),
        spark__task__maxFailures="2",
    )
    assert "[HG-5003]" in told["error"]
    assert "No space left on device" in told["error"]
    assert told["left"] == []
    assert told["works"]["right"], told["works"]
