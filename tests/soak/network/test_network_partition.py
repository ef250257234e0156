"""A link that goes down between two hosts: no GOODBYE arrives, and no byte is acknowledged."""

import pickle
import time

import pytest
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import Task
from tests.faults.network import Child
from tests.kit.namespaces import ADDRESSES, hosts, ip

__all__ = ["environment", "hosts", "nothing_left"]

#: Limit in seconds for the loss to be noticed. The kernel gives up when bytes are not acknowledged
#: for 10 s. A waiting consumer sends no bytes; there the kernel probes after 4 s of silence and
#: then every 2 s, and gives up after 10 s as well.
LIMITS = {"busy": 30.0, "idle": 30.0}


SERVE = f"""
env = environment(listen="{ADDRESSES[0]}:0")
partition = env.create_result_partition(1, schema=NUMBERS)
say(pickle.dumps(partition.address(0)).hex())
writer = hg.RecordWriter(partition)
turn = 0
try:
    while True:
        writer.emit(numbers(1000))
        writer.flush()
        PAUSE
except hg.HeadgateError as error:
    say(type(error).__name__, str(error).replace(chr(10), " "))
"""

READ = """
env = environment()
gate = env.create_input_gate([address])
reader = hg.RecordReader(gate)
next(reader)
say("reads")
try:
    for batch in reader:
        pass
    say("the end")
except hg.HeadgateError as error:
    say(type(error).__name__, str(error).replace(chr(10), " "))
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("traffic", ["busy", "idle"])
def test_a_link_that_goes_down_is_a_lost_peer_on_both_sides(hosts, traffic):
    pause = (
        "time.sleep(0.001)"
        if traffic == "busy"
        else "turn += 1; time.sleep(0.001 if turn < 5 else 200)"
    )
    with Child(SERVE.replace("PAUSE", pause), command=hosts.on("first")) as producer:
        address = pickle.loads(bytes.fromhex(producer.line()))
        assert address.host == ADDRESSES[0]
        with Child(READ, address, hosts.on("second")) as consumer:
            assert consumer.line() == "reads"
            time.sleep(1)
            ip("-n", hosts.name("second"), "link", "set", "eth0", "down")
            down = time.monotonic()
            sides = {"consumer": consumer} | ({"producer": producer} if traffic == "busy" else {})
            waiting = {name: Task(child.line, 150) for name, child in sides.items()}
            for name, task in waiting.items():
                said = task.result(160)
                after = time.monotonic() - down
                print(f"{name} after {after:.1f} s: {said}")
                assert said.startswith("PeerLostError"), said
                assert ADDRESSES[0] in said or ADDRESSES[1] in said, "the peer is not named"
                assert after < LIMITS[traffic]
