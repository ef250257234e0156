"""Kept exchanges on separate hosts under TLS: the rows are right, and a capture of the network shows none."""

import re
import subprocess
import sys

import pytest
from standalone_cluster import WORKERS

ROWS = 300_000
#: A text in every row, 180 times.
MARK = b"x" * 40
#: The datagram by which a task that starts tells the driver; none is sent if rows are encrypted.
NOTICE = re.compile(rb'\["[0-9a-f]{30,32}", [0-9]+, "(map|reduce)"')
#: Writes each frame of Ethernet that passes the device eth0 to standard output, until it is killed.
CAPTURE = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sock:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    sock.bind(("eth0", 0))
    print("ready", file=sys.stderr, flush=True)
    while True:
        sys.stdout.buffer.write(sock.recv(1 << 16))
"""

pytestmark = [pytest.mark.timeout(420)]


@pytest.fixture
def captured(cluster, tmp_path):
    """Capture what a worker's host sends and receives; return a function that ends it and returns the bytes."""
    with (tmp_path / "frames").open("wb") as frames:
        command = [sys.executable, "-c", CAPTURE]
        process = cluster.network.start(WORKERS[0], command, stdout=frames, stderr=subprocess.PIPE)
    assert process.stderr.readline() == b"ready\n"

    def end():
        process.kill()
        process.wait()
        return (tmp_path / "frames").read_bytes()

    with process:
        yield end
        process.kill()


def test_a_capture_of_the_network_shows_no_row(session, captured):
    answer = session.ask("keep", timeout=180, rows=ROWS, partitions=5, tls="require")
    assert answer["error"] == ""
    assert sum(row["n"] for row in answer["rows"]) == ROWS
    assert {worker for worker in WORKERS for row in answer["rows"] if worker in row["here"]} == {
        *WORKERS
    }
    frames = captured()
    # A part of the rows of 200 bytes came from the other host, and what is encrypted has no repeats.
    assert len(frames) > 10_000_000
    assert MARK not in frames
    assert NOTICE.search(frames) is None
