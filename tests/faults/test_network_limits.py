"""Processes that run out of descriptors or address space, and machines whose clock is changed."""

import contextlib
import re
from pathlib import Path

import pytest
from tests.data_plane import wire
from tests.data_plane.conftest import environment, nothing_left
from tests.data_plane.plane import NUMBERS, Task, assert_same, drain, numbers, wait_until
from tests.faults.network import Child, address_of

import headgate as hg

__all__ = ["environment", "nothing_left"]

ROOT = Path(__file__).resolve().parent.parent.parent

FEW_DESCRIPTORS = """
import resource
env = environment()
partition = env.create_result_partition(1, schema=NUMBERS)
with hg.RecordWriter(partition) as writer:
    writer.emit(numbers(5000))
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, used + 20))
say(pickle.dumps(partition.address(0)).hex())
sys.stdin.readline()
before = time.process_time()
time.sleep(2)
say("busy", round(time.process_time() - before, 2))
say("written", partition.wait_consumed(30))
env.close()
"""


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_producer_without_a_descriptor_for_one_more_connection_waits_for_one(environment):
    with Child(FEW_DESCRIPTORS) as child, contextlib.ExitStack() as stack:
        address = address_of(child)
        before = descriptors(child.process.pid)
        # More connections than free descriptors, and fewer than the limit of half-open ones.
        held = [stack.enter_context(wire.connect(address)) for _ in range(40)]
        wait_until(lambda: descriptors(child.process.pid) >= before + 15)
        child.process.stdin.write("measure\n")
        child.process.stdin.flush()
        gate = environment().create_input_gate([address])
        reading = Task(drain, gate)
        word, seconds = child.line().split()
        assert word == "busy"
        assert float(seconds) < 1.0, "the I/O thread spins"
        for sock in held:
            sock.close()
        assert_same(reading.result(), numbers(5000))
        gate.close()
        assert child.end() == (0, "written True\n", "")


NO_DESCRIPTOR = """
import resource
env = environment()
own = env.create_result_partition(1, schema=NUMBERS)
gate = env.create_input_gate(sealed=False, schema=NUMBERS)
other = environment()
far = other.create_result_partition(1, schema=NUMBERS)
gate.add_channel(far.address(0))  # the I/O thread runs
time.sleep(0.5)
used = len(os.listdir("/proc/self/fd")) - 1
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
try:
    gate.add_channel(address)
    gate.seal()
    next(hg.RecordReader(gate))
    say("a row")
except hg.HeadgateError as error:
    say(type(error).__name__, str(error).replace(chr(10), " "))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
"""


def test_a_consumer_without_a_descriptor_for_a_connection_says_so(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with Child(NO_DESCRIPTOR, partition.address(0)) as child:
        said = child.line()
        assert "Error" in said.split()[0], said
        assert "open files" in said
        assert "ulimit -n" in said
        assert f":{partition.address(0).port}" in said, "the peer is not named"
        status, _, err = child.end()
        assert status == 0, err


NO_IO_THREAD = """
import resource
env = environment()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
used = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
try:
    env.create_input_gate([address])
    say("a gate")
except hg.HeadgateError as error:
    say(used, type(error).__name__, str(error).replace(chr(10), " "))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
gate = env.create_input_gate([address])
say(sum(batch.num_rows for batch in hg.RecordReader(gate)))
gate.close()
env.close()
"""


def test_an_environment_without_a_descriptor_for_its_thread_says_which_limit_to_raise(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(100))
    with Child(NO_IO_THREAD, partition.address(0)) as child:
        used, name, said = child.line().split(" ", 2)
        assert name == "ConnectError", said
        assert "open files" in said
        assert f"{used} are allowed" in said
        assert "ulimit -n" in said
        assert child.end() == (0, "100\n", "")


ADDRESS_SPACE = """
import resource
env = environment()
env.close()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * os.sysconf("SC_PAGE_SIZE") + 100_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
env = environment(memory="1g", segment_size="1m")
gate = env.create_input_gate([address])
say(sum(batch.num_rows for batch in hg.RecordReader(gate)))
gate.close()
env.close()
"""


def test_a_pool_takes_address_space_only_as_it_is_used(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    with Child(ADDRESS_SPACE, partition.address(0)) as child:
        with hg.RecordWriter(partition) as writer:
            writer.emit(numbers(10_000))
        assert child.end() == (0, "10000\n", "")


def test_nothing_that_waits_looks_at_the_clock_of_the_wall():
    # A test that sets the machine's clock would disturb other processes, so this searches the code.
    looked, found = 0, []
    sources = [*ROOT.glob("rust_core/*/src/**/*.rs"), *ROOT.glob("python/headgate/spark/**/*.py")]
    for source in sources:
        looked += 1
        if re.search(r"\bSystemTime\b|\btime\.time\(|datetime\.now\(", source.read_text("utf-8")):
            found.append(str(source.relative_to(ROOT)))
    assert looked > 60
    # Functions that tell the time of day; nothing waits for it.
    told = {
        # It stamps the barriers of checkpoints, which cross hosts. A wrong one shifts the time from which barriers overtake.
        "rust_core/exchange/src/clock.rs",
        # The trace says when each event was, so that those of several hosts can be put in order.
        "rust_core/trace/src/ring.rs",
        # The doctor compares the clocks of hosts, and reads the dates of certificates.
        *(
            f"python/headgate/spark/doctor/{name}.py"
            for name in ("crew", "gather", "peer", "probe")
        ),
        # When a run started.
        "python/headgate/spark/driver/kept/run_record.py",
    }
    assert set(found) == told


@pytest.mark.timeout(180)
def test_a_thousand_exchanges_in_one_process_leave_its_memory_as_it_was(environment):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def exchange():
        with (
            hg.ShuffleEnvironment(memory="256k", segment_size="16k", secret=bytes(32)) as producer,
            hg.ShuffleEnvironment(memory="256k", segment_size="16k", secret=bytes(32)) as consumer,
        ):
            partition = producer.create_result_partition(1, schema=NUMBERS)
            with hg.RecordWriter(partition) as writer:
                writer.emit(numbers(100))
            gate = consumer.create_input_gate([partition.address(0)])
            assert sum(batch.num_rows for batch in hg.RecordReader(gate)) == 100
            gate.close()

    for _ in range(100):
        Task(exchange).result()
    before = resident()
    for _ in range(900):
        Task(exchange).result()
    grown = resident() - before
    print(f"{grown / 900:.0f} bytes per exchange")
    assert grown < 16 << 20
