"""Workers do not wait for acknowledgements of TCP, and leave no descriptor open for it."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("kept")


def same(batches):
    yield from batches


def looked(batches):
    """Yield the process, its TCP connections, those of them that may wait, and its open files."""
    import os
    import socket
    import stat
    from pathlib import Path

    for _ in batches:
        pass
    connections = waiting = 0
    numbers = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    for number in numbers:
        try:
            is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
        except OSError:
            continue  # that of the directory itself
        if is_socket:
            with socket.socket(fileno=os.dup(number)) as one:
                if one.family == socket.AF_INET and one.getpeername():
                    connections += 1
                    waiting += not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    row = {
        "pid": os.getpid(),
        "connections": connections,
        "waiting": waiting,
        "files": len(numbers),
    }
    yield pa.RecordBatch.from_pylist([row])


@pytest.mark.parametrize("map_", [same, None])
def test_the_connection_from_the_jvm_does_not_wait(spark, map_):
    files = {}
    schema = "pid long, connections long, waiting long, files long"
    for _ in range(4):
        df = spark.range(0, 40, 1, 4)
        rows = exchange(df, by="id", map=map_, reduce=looked, schema=schema).collect()
        for row in rows:
            assert row["connections"] > 0
            assert row["waiting"] == 0
            files.setdefault(row["pid"], []).append(row["files"])
    for counts in files.values():
        # The first tasks of a worker may import, and keep files open.
        assert max(counts[2:], default=0) <= max(counts[:2])
