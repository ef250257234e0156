"""Facts of Linux about a process: peak of memory, control groups of both versions."""

from dataclasses import replace

import pytest
from tests.kit.cgroups import V1, V2, Machine

from headgate import _process
from headgate._process import MemoryGroup, host_id, memory_group_now

MIB = 1 << 20
#: Version 1 writes it where there is no limit.
NO_LIMIT = (1 << 63) - 4096


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("lines", "files", "folder", "kills", "limit"),
    [
        (["0::/a/b"], {"a/b/memory.events": V2.format(3)}, "a/b", 3, None),
        (
            ["0::/a/b"],
            {
                "a/b/memory.events": V2.format(0),
                "a/b/memory.max": "max\n",
                "a/memory.max": f"{400 * MIB}\n",
            },
            *("a/b", 0, 400 * MIB),
        ),
        (["0::/"], {"memory.events": V2.format(2), "memory.max": f"{MIB}\n"}, "", 2, MIB),
        (
            ["3:pids:/x", "2:cpu,memory:/a", "0::/"],
            {
                "pids/x/memory.oom_control": V1.format(7),
                "cpu,memory/a/memory.oom_control": V1.format(1),
                "cpu,memory/a/memory.limit_in_bytes": f"{MIB}\n",
                "cpu,memory/memory.limit_in_bytes": f"{NO_LIMIT}\n",
            },
            *("cpu,memory/a", 1, MIB),
        ),
        # A container sees its own group as the root, and the path of its host.
        (["4:memory:/docker/1"], {"memory/memory.oom_control": V1.format(5)}, "memory", 5, None),
        (["0::/a"], {"unified/a/memory.events": V2.format(1)}, "unified/a", 1, None),
    ],
)
def test_the_group_of_a_process_its_kills_and_its_least_limit(
    machine, lines, files, folder, kills, limit
):
    for name, text in files.items():
        machine.write(machine.cgroups / name, text)
    group = machine.group(lines)
    place = machine.cgroups / folder
    about = place.stat()
    assert group == MemoryGroup(host_id(), str(place), about.st_dev, about.st_ino, kills, limit)


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        (["0::/a"], {}),
        (["0::/a"], {"a/memory.events": "oom 1\n"}),
        (["0::/a"], {"a/memory.events": "oom_kill many\n"}),
        (["4:pids:/a"], {"a/memory.events": V2.format(1)}),
    ],
)
def test_no_group_is_guessed(machine, lines, files):
    for name, text in files.items():
        machine.write(machine.cgroups / name, text)
    assert machine.group(lines) is None


def test_a_group_is_read_again_only_where_it_is_the_same_one(machine):
    file = machine.cgroups / "a/memory.events"
    machine.write(file, V2.format(1))
    group = machine.group(["0::/a"])
    machine.write(file, V2.format(4))
    assert memory_group_now(group) == replace(group, kills=4)
    assert memory_group_now(replace(group, host="another host")) is None
    # Another container has another group at the same path.
    assert memory_group_now(replace(group, inode=group.inode + 1)) is None
    file.unlink()
    assert memory_group_now(group) is None


def test_the_peak_is_that_since_its_reset():
    size = 200 * MIB
    block = bytearray(size)
    before = _process.peak_resident_bytes()
    assert before > size
    del block
    if not _process.reset_peak():
        pytest.skip("the kernel refuses to reset the peak of a process")
    assert 0 < _process.peak_resident_bytes() < before - size // 2
