"""Exchange data stays within the pool's budget, even with a slow or a hoarding reader.

The two workers are processes that run this file with a role as argument.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg

MIB = 1 << 20
POOL = 16 * MIB
#: Resident memory that a worker may gain beyond its pool.
ALLOWANCE = 96 * MIB
ROWS = 10_000_000
BATCH_ROWS = 50_000
#: Limit of the slow reader's time, in seconds.
LONGEST = 30.0
SCHEMA = pa.schema({"id": pa.int64(), "key": pa.int64(), "x": pa.float64(), "name": pa.string()})


def batch_of(rows):
    """Return a batch of about 45 bytes per row: 10 M rows are about 450 MB."""
    ids = np.arange(rows)
    names = pc.binary_join_element_wise("name-", pa.array(ids % 900_000_000).cast(pa.string()), "")
    names = pc.utf8_lpad(names, 17, "-")
    return pa.record_batch(
        [pa.array(ids), pa.array(ids % 1000), pa.array(ids * 0.5), names], SCHEMA
    )


def resident(field):
    """Return VmRSS or VmHWM, the resident memory of this process now or at its peak, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def environment():
    return hg.ShuffleEnvironment(memory=POOL, secret=bytes.fromhex(os.environ["SECRET"]))


def say(**values):
    print(json.dumps(values), flush=True)


def seconds_per_row(batch):
    """Return the seconds per row of writing to a reader that only reads."""
    with environment() as ours, environment() as theirs:
        partition = ours.create_result_partition(1)
        gate = theirs.create_input_gate([partition.address(0)], schema=SCHEMA)
        drain = threading.Thread(target=lambda: sum(1 for _ in hg.RecordReader(gate)))
        drain.start()
        started = time.perf_counter()
        with hg.RecordWriter(partition, SCHEMA) as writer:
            for _ in range(20):
                writer.emit(batch)
        drain.join()
        return (time.perf_counter() - started) / (20 * batch.num_rows)


def write():
    batch = batch_of(BATCH_ROWS)
    pace = seconds_per_row(batch)
    before = resident("VmRSS")
    with environment() as env:
        partition = env.create_result_partition(1)
        address = partition.address(0)
        ids = {"partition": address.partition_id.hex(), "process": address.process_id.hex()}
        say(host=address.host, port=address.port, seconds_per_row=pace, **ids)
        started = time.perf_counter()
        with hg.RecordWriter(partition, SCHEMA) as writer:
            for _ in range(ROWS // BATCH_ROWS):
                writer.emit(batch)
        seconds = time.perf_counter() - started
        assert partition.wait_consumed(60)
        grown = resident("VmHWM") - before
        say(
            rows=writer.stats().rows,
            bytes=writer.stats().bytes,
            peak=env.stats()["peak_bytes"],
            grown=grown,
            seconds=seconds,
        )


def read(place):
    address = hg.ChannelAddress(
        place["host"],
        place["port"],
        bytes.fromhex(place["partition"]),
        0,
        bytes.fromhex(place["process"]),
    )
    pace = min(10 * place["seconds_per_row"], LONGEST / ROWS)
    expected = pc.sum(batch_of(BATCH_ROWS)["id"]).as_py() * (ROWS // BATCH_ROWS)
    before = resident("VmRSS")
    with environment() as env:
        rows = total = 0
        started = time.perf_counter()
        for batch in hg.RecordReader(env.create_input_gate([address]), schema=SCHEMA):
            rows += batch.num_rows
            total += pc.sum(batch["id"]).as_py()
            # Sleep until a deadline, so that a late wake-up does not slow the pace.
            time.sleep(max(0.0, started + rows * pace - time.perf_counter()))
        stats = env.stats()
        grown = resident("VmHWM") - before
        say(
            rows=rows,
            right=total == expected,
            peak=stats["peak_bytes"],
            grown=grown,
            seconds=time.perf_counter() - started,
            wanted=rows * pace,
            copies=stats["copies"],
        )


def test_a_slow_reader_holds_the_writer_and_memory_stays_bounded():
    shared = os.environ | {"SECRET": os.urandom(32).hex()}
    command = [sys.executable, __file__]
    with subprocess.Popen([*command, "write"], stdout=subprocess.PIPE, env=shared) as writer:
        try:
            place = writer.stdout.readline().decode()
            done = subprocess.run(
                [*command, "read", place], env=shared, capture_output=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr.decode()
            ended = writer.communicate(timeout=10)[0]
        finally:
            writer.kill()
    reader, written = json.loads(done.stdout), json.loads(ended)
    assert reader["rows"] == written["rows"] == ROWS
    assert reader["right"]
    assert 400e6 < written["bytes"] < 500e6
    # The writer is at most the contents of both pools ahead of the reader.
    assert written["seconds"] >= 0.8 * reader["wanted"]
    for worker in (reader, written):
        assert 0 < worker["peak"] <= POOL
        assert worker["grown"] <= POOL + ALLOWANCE, worker


def test_a_list_of_ten_times_the_pool_finishes():
    batch = batch_of(BATCH_ROWS)
    emitted = 10 * POOL // batch.nbytes + 1
    secret = os.urandom(32)
    # Two environments use a connection, even in one process.
    with (
        hg.ShuffleEnvironment(memory=POOL, secret=secret) as ours,
        hg.ShuffleEnvironment(memory=POOL, secret=secret) as theirs,
    ):
        partition = ours.create_result_partition(1)
        gate = theirs.create_input_gate([partition.address(0)], schema=SCHEMA)

        def emit():
            with hg.RecordWriter(partition, SCHEMA) as writer:
                for _ in range(emitted):
                    writer.emit(batch)

        thread = threading.Thread(target=emit)
        thread.start()
        kept = list(hg.RecordReader(gate))
        thread.join()
        peaks = [env.stats()["peak_bytes"] for env in (ours, theirs)]
        copied = theirs.stats()["copies"]["pool_low"]
    # Batches stay intact after the environments are closed, both in segments and in other memory.
    table = pa.Table.from_batches(kept)
    assert table.equals(pa.Table.from_batches([batch] * emitted))
    assert table.nbytes >= 10 * POOL
    assert max(peaks) <= POOL
    assert copied >= table.nbytes - POOL


if __name__ == "__main__":
    write() if sys.argv[1] == "write" else read(json.loads(sys.argv[2]))
