"""A thread that the operating system refuses is one clear error, and no lack of memory."""

import subprocess
import sys

import pytest

#: Uses the environment after the process may start no more threads. The limit does not hold for root.
LIMITED = """
import os, resource
import headgate as hg
from headgate._native import HeartbeatManager
environment = hg.ShuffleEnvironment(secret=bytes(32))
blocking = environment.create_result_partition(1, kind="blocking")
partition = environment.create_result_partition(1)
with hg.RecordWriter(blocking, serializer="bytes", buffer_timeout=-1) as writer:
    writer.emit(bytes(100))
gate = environment.create_input_gate(sealed=False)
address = hg.ChannelAddress("localhost", 1, blocking.id, 0, environment.process_id)
if os.getuid() == 0:
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    {use}
except hg.HeadgateError as error:
    print(error)
"""
USES = {
    "headgate-io": "partition.address(0)",
    "headgate-flusher": 'hg.RecordWriter(partition, serializer="bytes", buffer_timeout=1.0)',
    "headgate-spill": 'gate.add_channel(address); next(iter(hg.RecordReader(gate, serializer="bytes")))',
    "headgate-beat": "HeartbeatManager()",
}


@pytest.mark.parametrize("thread", USES)
def test_a_refused_thread_is_named_with_the_limits(thread):
    command = [sys.executable, "-c", LIMITED.format(use=USES[thread])]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    first, facts, remedy, more = done.stdout.splitlines()
    assert first.startswith("[HG-1004] cannot start the ")
    assert thread in first
    assert "Resource temporarily unavailable" in first
    assert "ulimit -u (processes and threads of the user): 1 ·" in facts
    assert "pids.max" in facts
    assert "ulimit -u" in remedy
    assert more.endswith("explain HG-1004")
    assert "memory" not in first
