"""The host of an executor, as a real process."""

import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.waiting import wait_until

import headgate as hg
from headgate.kept import write_indexes
from headgate.spark.tasks import kept_files
from headgate.spark.tasks.host import LOCK
from headgate.spark.tasks.start_host import HostPlan, ensure, refuses, revive

PLAN = HostPlan(bytes(range(16)), bytes(range(32)), "127.0.0.1")
SCHEMA = pa.schema([("n", pa.int64())])
#: MiB that a host may take.
MOST = 40


def hosts(folder):
    """Return the ids of the hosts of this folder, the oldest first: the processes that have its lock open."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                opened = [link.readlink() for link in (process / "fd").iterdir()]
            except OSError:
                continue
            if folder / LOCK in opened:
                found.append((started_at(process), int(process.name)))
    # Not by their ids, which begin anew after the largest.
    return [number for _, number in sorted(found)]


def started_at(process):
    """Return when a process began, in ticks since the machine did."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[19])


@pytest.fixture(params=["ab"])
def executor(tmp_path, request):
    """Two local directories of an executor; a host ends with them."""
    directories = tuple(str(tmp_path / f"blockmgr-{name}") for name in request.param)
    for directory in directories:
        Path(directory).mkdir()
    yield directories
    folder = kept_files.folders_of(directories)[0]
    for directory in directories:
        shutil.rmtree(directory)
    wait_until(lambda: not hosts(folder), "the host has ended", 10)


def anonymous(process):
    """Return the MiB of memory of a process that no file backs."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def leave(directories, producer, attempt, rows=1000, inline_limit=0):
    """Leave the files of a producer with two subpartitions."""
    folder = kept_files.folders_of(directories)[attempt % len(directories)]
    folder.mkdir(exist_ok=True)
    options = {"memory": "4m", "segment_size": "64k", "temp_directories": [str(folder)]}
    with hg.ShuffleEnvironment(**options) as environment:
        partition = environment.create_result_partition(2, kind="blocking", schema=SCHEMA)
        with hg.RecordWriter(partition, selector=hg.RoundRobinSelector(by_rows=True)) as writer:
            writer.emit(pa.record_batch({"n": [producer * 10**6 + i for i in range(rows)]}))
        place = kept_files.path_in(folder, "ab12", producer, attempt)
        kept = partition.keep(place, inline_limit=inline_limit)
        return Path(write_indexes(place, kept))


def read(address, producer, attempt, index):
    with hg.ShuffleEnvironment(
        secret=PLAN.secret, exchange_id=PLAN.application, memory="4m", segment_size="64k"
    ) as environment:
        gate = environment.create_input_gate(sealed=False, schema=SCHEMA)
        name = kept_files.partition_id("ab12", producer, attempt)
        process = bytes.fromhex(address.process)
        gate.add_channel(hg.ChannelAddress(address.host, address.port, name, index, process))
        gate.seal()
        batches = list(hg.RecordReader(gate, schema=SCHEMA))
        return [n for batch in batches for n in batch["n"].to_pylist()]


def test_files_are_served_whether_they_come_before_the_host_or_after_it(executor):
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    leave(executor, 2, 11, inline_limit=1 << 20)
    for producer, attempt in ((1, 10), (2, 11)):
        for index in (0, 1):
            right = [producer * 10**6 + i for i in range(index, 1000, 2)]
            assert read(address, producer, attempt, index) == right


@pytest.mark.parametrize("executor", [["\udcff", "\udcfe\n"]], indirect=True)
def test_names_of_directories_that_are_not_utf_8_are_served(executor):
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    assert read(address, 1, 10, 1) == [10**6 + i for i in range(1, 1000, 2)]
    process = min(hosts(kept_files.folders_of(executor)[0]))
    assert anonymous(process) < MOST


def test_many_producers_at_once_start_one_host_which_is_small(executor):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ensure(PLAN, executor))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    leave(executor, 1, 10, rows=2_000_000)
    assert len(read(found[0], 1, 10, 0)) == 1_000_000
    processes = hosts(kept_files.folders_of(executor)[0])
    assert len(processes) == 2, "one that serves, and one that starts it again"
    assert sum(map(anonymous, processes)) < MOST


def test_a_process_that_serves_and_is_killed_is_followed_at_the_same_address(executor):
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    for _ in range(3):
        starter, serving = hosts(kept_files.folders_of(executor)[0])
        os.kill(serving, signal.SIGKILL)
        wait_until(lambda: len(read_if_it_can(address)) == 500, "its files are served again", 10)
        assert ensure(PLAN, executor) == address
        assert hosts(kept_files.folders_of(executor)[0]) != [starter, serving]


def test_the_process_that_serves_needs_none_above_it(executor):
    folder = kept_files.folders_of(executor)[0]
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    starter, serving = hosts(folder)
    os.kill(starter, signal.SIGKILL)
    wait_until(lambda: hosts(folder) == [serving], "one is gone", 10)
    leave(executor, 2, 11)
    assert len(read(address, 2, 11, 1)) == 500
    assert ensure(PLAN, executor) == address
    assert hosts(folder) == [serving]


@pytest.mark.parametrize("does", [ensure, revive])
def test_a_host_that_was_killed_as_a_whole_is_followed_at_the_same_address(executor, does):
    folder = kept_files.folders_of(executor)[0]
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    for process in hosts(folder):  # first the one that would start another one
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not hosts(folder), "both are gone", 10)
    # The kernel closes the sockets of a killed process after its id has gone.
    wait_until(lambda: refuses(address.host, address.port, 0.0), "nobody listens", 10)
    does(PLAN, executor)
    assert not refuses(address.host, address.port, 10.0)
    assert len(read(address, 1, 10, 1)) == 500
    assert ensure(PLAN, executor) == address


def test_a_host_whose_port_is_taken_is_followed_at_another_one(executor):
    folder = kept_files.folders_of(executor)[0]
    leave(executor, 1, 10)
    first = ensure(PLAN, executor)
    for process in hosts(folder):
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not hosts(folder), "both are gone", 10)
    wait_until(lambda: refuses(first.host, first.port, 0.0), "nobody listens", 10)
    with socket.create_server((first.host, first.port)):
        second = ensure(PLAN, executor)
    assert second.port != first.port
    assert second.process != first.process
    assert len(read(second, 1, 10, 1)) == 500


def test_no_host_is_started_where_none_was(executor):
    folder = kept_files.folders_of(executor)[0]
    revive(PLAN, executor)
    assert not folder.exists()
    leave(executor, 1, 10)
    revive(PLAN, executor)
    assert not hosts(folder)


def read_if_it_can(address):
    try:
        return read(address, 1, 10, 1)
    except hg.HeadgateError:
        return []


def test_deleted_files_are_not_served(executor):
    indexes = leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    assert len(read(address, 1, 10, 0)) == 500
    indexes.unlink()
    time.sleep(1.5)
    with pytest.raises(hg.errors.PartitionNotFoundError, match="released"):
        read(address, 1, 10, 0)


@pytest.mark.soak
def test_who_does_not_know_the_secret_gets_nothing(executor):
    leave(executor, 1, 10)
    address = ensure(PLAN, executor)
    with hg.ShuffleEnvironment(exchange_id=PLAN.application) as environment:
        gate = environment.create_input_gate(sealed=False, schema=SCHEMA)
        name = kept_files.partition_id("ab12", 1, 10)
        process = bytes.fromhex(address.process)
        gate.add_channel(hg.ChannelAddress(address.host, address.port, name, 0, process))
        gate.seal()
        with pytest.raises(hg.errors.HandshakeError):
            list(hg.RecordReader(gate, schema=SCHEMA))


def test_a_host_that_cannot_start_says_why(executor, monkeypatch):
    from headgate.spark.tasks import start_host as start

    monkeypatch.setattr(start, "_START", 1.0)
    monkeypatch.setattr(start, "_BOOT", "raise OSError('no such thing')")
    with pytest.raises(hg.errors.ConnectError, match="OSError: no such thing"):
        ensure(PLAN, executor)
