"""Two thousand short exchanges, a quarter over each link, after which no resource is left and memory has not grown.

Each quarter runs in a process of its own, which prints its resources after each tenth: this file, with the arguments
LINK COUNT FOLDER. Every tenth exchange is cancelled: its reader leaves and keeps a batch, or its writer fails.
"""

import contextlib
import gc
import os
import random
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit import resources

import headgate as hg

LINKS = {
    "local": {},
    "same_host": {"same_host_link": "auto"},
    "tcp": {"same_host_link": "off"},
    "tls": {"same_host_link": "off", "tls": "require"},
}
KINDS = ("pipelined", "pipelined_bounded", "hybrid", "blocking")
SUBPARTITIONS = 2
BATCHES, ROWS = 6, 3_000
#: Longer than the limit from which on a reader writes a record to a file.
LARGE = 1_500_000
#: Growth of the least resident memory from one half to the next. Allocators keep some pages now and then, leaks grow.
GROWTH = 8 << 20
#: Exchanges between two looks at the memory.
LOOK = 5


@dataclass(frozen=True)
class Count:
    """The resources of this process; memory in bytes."""

    descriptors: int
    threads: int
    shared: int
    files: int
    names: int
    memory: int

    @classmethod
    def now(cls, folder):
        """Count once threads that end have had a moment."""
        gc.collect()
        here = resources.look()
        names = Path("/proc/net/unix").read_text().count("@headgate")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            len(list(Path("/proc/self/fd").iterdir())),
            len(here.ours),
            len(here.mapped),
            len(list(Path(folder).rglob("*"))),
            names,
            pages * os.sysconf("SC_PAGE_SIZE"),
        )


def batch(turn, number):
    start = (turn * BATCHES + number) * ROWS
    return pa.record_batch({"n": pa.array(range(start, start + ROWS), pa.int64())})


def write(writer, turn, serializer, ending, errors):
    """Emit the records of an exchange; fail in the midst of it if that is its ending."""
    try:
        for number in range(BATCHES):
            if ending == "fail" and number == BATCHES // 2:
                raise ValueError("the function of this exchange failed")
            if serializer == "arrow":
                writer.emit(batch(turn, number))
            else:
                writer.emit(bytes([number]) * (LARGE if number == 0 else 5_000))
        writer.finish()
    except ValueError as error:
        writer.fail(error)
    except hg.HeadgateError as error:
        errors.append(error)
        with contextlib.suppress(hg.HeadgateError):
            writer.fail(error)


def read(gate, serializer, ending, kept):
    """Read a subpartition; return the number of its rows, or None if that ended early."""
    rows, reader = 0, hg.RecordReader(gate, serializer=serializer)
    try:
        for record in reader:
            rows += len(record) if serializer == "bytes" else record.num_rows
            if ending == "leave":
                kept.append(record)
                return None
    except hg.HeadgateError:
        return None
    finally:
        reader.close()
    return rows


def exchange(link, turn, folder, done):
    """Run one exchange with environments of its own."""
    dice = random.Random(turn)
    kind, serializer = dice.choice(KINDS), dice.choice(["arrow", "arrow", "bytes"])
    ending = dice.choice(["fail", "leave"]) if turn % 10 == 9 else "all"
    options = {"memory": "4m", "segment_size": "64k", "secret": bytes(32)}
    options |= {"temp_directories": folder, "spill_threshold": "1m", **LINKS[link]}
    producer = hg.ShuffleEnvironment(**options)
    consumer = producer if link == "local" else hg.ShuffleEnvironment(**options)
    schema = batch(0, 0).schema if serializer == "arrow" else None
    partition = producer.create_result_partition(SUBPARTITIONS, schema=schema, kind=kind)
    selector = hg.HashSelector(["n"]) if serializer == "arrow" else hg.BroadcastSelector()
    writer = hg.RecordWriter(partition, schema, serializer=serializer, selector=selector)
    errors, kept = [], []
    arguments = (writer, turn, serializer, ending, errors)
    writing = threading.Thread(target=write, args=arguments)
    writing.start()
    if kind == "blocking":
        writing.join()
    gates, rows = [], []
    for index in range(SUBPARTITIONS):
        try:
            gates.append(consumer.create_input_gate([partition.address(index)]))
        except hg.HeadgateError:
            rows.append(None)
    readers = [
        threading.Thread(target=lambda gate=gate: rows.append(read(gate, serializer, ending, kept)))
        for gate in gates
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    for gate in gates:
        gate.close()
    if ending == "leave":
        partition.fail("nobody reads it")
    writing.join()
    if ending == "all":
        size = LARGE + (BATCHES - 1) * 5_000
        whole = BATCHES * ROWS if serializer == "arrow" else SUBPARTITIONS * size
        assert not errors, errors
        assert sum(rows) == whole, (turn, kind, serializer, rows)
    partition.close()
    consumer.close()
    producer.close()
    # Records outlive their environments.
    assert all(len(record) > 0 for record in kept)
    done[kind, serializer, ending] = done.get((kind, serializer, ending), 0) + 1


def main(link, count, folder):
    """Run the exchanges; exit with 1 and the reason if something is left."""
    before, memory, done = Count.now(folder), [], {}
    print("before", asdict(before))
    for turn in range(count):
        exchange(link, turn, folder, done)
        if (turn + 1) % LOOK == 0:
            memory.append(Count.now(folder).memory)
        if (turn + 1) % (count // 10) == 0:
            now = Count.now(folder)
            print(f"{turn + 1:>6}", asdict(now), flush=True)
    end = Count.now(folder)
    for what, times in sorted(done.items()):
        print(f"  {' '.join(what):<36}{times:>6}")
    left = [
        f"{name}: {was} before, {asdict(end)[name]} at the end"
        for name, was in asdict(before).items()
        if name != "memory" and asdict(end)[name] > was
    ]
    half = len(memory) // 2
    least = min(memory[half // 5 : half]), min(memory[half:])
    if least[1] > least[0] + GROWTH:
        left.append(f"memory: at least {least[0]} in the first half, {least[1]} in the second")
    if len({kind for kind, *_ in done}) < len(KINDS) or len({how for *_, how in done}) < 3:
        left.append("not every kind of exchange was run")
    print("\n".join(left) or "nothing is left")
    return bool(left)


ROOT = Path(__file__).resolve().parents[3]
COUNT = 500

pytestmark = [pytest.mark.timeout(600)]


@pytest.mark.parametrize("link", ["local", "same_host", "tcp", "tls"])
def test_nothing_is_left_of_short_exchanges(link, tmp_path):
    command = [sys.executable, __file__, link, str(COUNT), str(tmp_path)]
    # Each exchange has new threads, and the arenas that they leave would hide a leak.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("nothing is left\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
