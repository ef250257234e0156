"""Real causes of waits between two hosts: each is named, and none of them in place of another."""

import json
import pickle
import shutil
import subprocess

import pytest
from tests.data_plane.conftest import environment, nothing_left
from tests.faults.network import Child
from tests.kit.namespaces import ADDRESSES, hosts

from headgate.observe.record import Task
from headgate.observe.verdict import verdict_of_exchange

__all__ = ["environment", "hosts", "nothing_left"]

SERVE_KEPT = f"""
from headgate.kept import write_indexes
env = environment(listen="{ADDRESSES[0]}:0", memory="16m")
partition = env.create_result_partition(1, kind="blocking", schema=NUMBERS)
with hg.RecordWriter(partition) as writer:
    for _ in range(8):
        writer.emit(numbers(100_000))
kept = partition.keep(file := address, inline_limit=0)
env.serve(bytes(16), write_indexes(file, kept))
place = hg.ChannelAddress(*env.address, bytes(16), 0, env.process_id)
say(pickle.dumps((place, kept[0])).hex())
sys.stdin.readline()
env.close()
"""

READ_KEPT = """
import json
from headgate.spark.tasks.kept_reader import KeptReader, KeptReading
from headgate.spark.tasks.timing import FUNCTION, INPUT, Clock
reading = KeptReading({**SMALL, "secret": SECRET}, 0, None, 8)
with KeptReader(reading) as reader:
    clock = Clock()
    for batch in reader.read_kept([address], NUMBERS):
        clock.enter(FUNCTION)
        if PAUSE:
            time.sleep(PAUSE)
        clock.enter(INPUT)
    times = clock.fields()
    say(json.dumps({**times, "disk_ms": reader.disk_ms, "link_ms": reader.link_ms}))
"""

#: For each cause: rate of the link in Mbit/s, seconds that the consumer sleeps for each page, whether it has the files, and
#: the kind of the verdict.
KEPT_CASES = {
    "slow network": (10, 0, False, "remote-read"),
    "slow network and slower consumer": (20, 0.1, False, "reduce-busy"),
    "files of its own": (10, 0, True, None),
    "nothing is slow": (None, 0, False, None),
}


def limit(command, rate):
    """Limit what a host sends, in Mbit/s; the command runs another one there."""
    if shutil.which("tc") is None:
        pytest.skip("there is no `tc` command")
    words = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf"]
    words += ["rate", f"{rate}mbit", "burst", "32kbit", "latency", "400ms"]
    done = subprocess.run([*command, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no limit of a link here: {done.stderr.strip()}")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("case", KEPT_CASES)
def test_the_consumer_of_a_kept_exchange_names_the_other_hosts_only_if_it_waits_for_them(
    hosts, case, tmp_path
):
    rate, pause, has_files, kind = KEPT_CASES[case]
    if rate is not None:
        limit(hosts.on("first"), rate)
    file = str(tmp_path / "kept")
    with Child(SERVE_KEPT, file, hosts.on("first")) as server:
        place, kept = pickle.loads(bytes.fromhex(server.line()))
        asked = kept if has_files else place
        with Child(READ_KEPT.replace("PAUSE", str(pause)), asked, hosts.on("second")) as consumer:
            read = json.loads(consumer.line(150))
            assert consumer.end()[0] == 0
        server.process.stdin.write("\n")
        server.process.stdin.flush()
        assert server.end()[0] == 0
    found = verdict_of_exchange([Task("reduce", 0, "done", **read)], 10.0)
    assert (found and found.kind) == kind, read
    if has_files:
        assert read["link_ms"] == 0
    else:
        assert 0 < read["link_ms"] <= read["input_ms"] + 1
