"""Clocks, limits, shared memory, disks and memory of the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import (
    ClocksDiffer,
    MemoryLimitTooSmall,
    SlowDisk,
    SpillError,
    SystemLimitError,
)
from headgate.spark.doctor.context import those
from headgate.spark.doctor.findings import Finding
from headgate.spark.executor_memory import beside_heap, conf_size, heap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.spark.doctor.context import Context, Facts
    from headgate.spark.doctor.findings import Level

_MB: Final = 1 << 20
_GB: Final = 1 << 30
#: Seconds of difference between two clocks that logs and event times can bear.
_CLOCK: Final = 1.0
#: Open files and processes of a user below which a busy host runs short.
_FILES: Final = 1024
_PROCESSES: Final = 1024
#: Address space that Python, pyarrow and the user's data need beside the pool.
_BESIDE: Final = 1 * _GB
#: Free bytes and bytes per second below which spilling is worth a warning.
_FREE: Final = 1 * _GB
_WRITE: Final = 50 * _MB


def clocks(context: Context) -> list[Finding]:
    """Compare the clocks of executors with the driver's."""
    if not context.executors:
        return []
    offsets = context.clocks
    off = {
        name: offset
        for name, (offset, unsure) in offsets.items()
        if max(0.0, abs(offset) - unsure) > _CLOCK
    }
    remedy = "run chrony or another NTP client on all hosts"
    if off:
        name = max(off, key=lambda executor: abs(off[executor]))
        summary = f"the clock of executor {name} is {_seconds(off[name])} the driver's"
        summary += f"; those of {len(off)} executors are off by more than {_CLOCK:g} s"
        return [Finding(ClocksDiffer.code, "warn", "clocks", summary, remedy)]
    if unknown := [name for name in context.executors if name not in offsets]:
        summary = f"the clock of executor {those(unknown)} is unknown"
        return [Finding(ClocksDiffer.code, "warn", "clocks", summary, remedy)]
    worst = max((abs(offset) + unsure for offset, unsure in offsets.values()), default=0.0)
    summary = f"within {max(1, round(worst * 1000)):,} ms of the driver's"
    return [Finding(ClocksDiffer.code, "ok", "clocks", summary)]


def limits(context: Context) -> list[Finding]:
    """Look at the limits of open files, processes and address space of the tasks."""
    check, code, findings = "limits", SystemLimitError.code, []
    processes, slots = context.processes, context.slots or 1
    values = {name: facts.part("limits") for name, facts in processes.items()}
    files = max(_FILES, 2 * slots + 128)
    for limit, option, least, noun in (
        ("nofile", "ulimit -n", files, "open files"),
        ("nproc", "ulimit -u", _PROCESSES, "processes and threads"),
        ("pids", "pids.max of the container", _PROCESSES, "processes and threads in its container"),
    ):
        low = {n: v for n, v in _numbers(values, limit).items() if v < least}
        if low:
            name = min(low, key=low.__getitem__)
            summary = f"{_who(context, low)} may have {low[name]:,.0f} {noun}, less than {least:,}"
            remedy = f"{option} of at least {max(least, 65_536):,}"
            findings.append(Finding(code, "warn", check, summary, remedy))
    pool = conf_size(context.options.get("memory")) or 64 * _MB
    low = {n: v for n, v in _numbers(values, "as").items() if v < pool + _BESIDE}
    if low:
        least_space = min(low.values())
        summary = (
            f"the address space (RLIMIT_AS) of tasks of {_who(context, low)} is {_bytes(least_space)}; "
            f"the pool takes {_bytes(pool)} of it, Python and pyarrow about {_bytes(_BESIDE)}"
        )
        remedy = "a larger spark.executor.pyspark.memory, which sets it · a larger ulimit -v · a smaller memory"
        level: Level = "fail" if least_space < pool else "warn"
        findings.append(Finding(code, level, check, summary, remedy))
    if unknown := [name for name, facts in values.items() if not facts.has("nofile")]:
        summary = f"the limits of {_who(context, unknown)} are unknown"
        findings.append(Finding(code, "warn", check, summary, "run it again"))
    if not findings and processes:
        summary = f"open files {_least(values, 'nofile')}, processes {_least(values, 'nproc')}, "
        summary += f"address space {_least(values, 'as', size=True)}"
        findings.append(Finding(code, "ok", check, summary))
    return findings


def shared_memory(context: Context) -> list[Finding]:
    """Say if memory can be shared between the processes of a host."""
    check, code, findings = "memfd", SystemLimitError.code, []
    answered = {n: f for n, f in context.processes.items() if f.has("memfd_error")}
    refused = {n: e for n, f in answered.items() if (e := f.text("memfd_error")) is not None}
    if refused:
        why = next(iter(refused.values()))
        summary = f"{_who(context, refused)} cannot share memory (memfd_create): {why}; pages within a host go by TCP"
        remedy = "allow memfd_create in the seccomp profile"
        findings.append(Finding(code, "warn", check, summary, remedy))
    if unknown := [name for name in context.processes if name not in answered]:
        summary = f"it is unknown if {_who(context, unknown)} can share memory"
        findings.append(Finding(code, "warn", check, summary, "run it again"))
    if not findings and answered:
        summary = "memory is shared by memfd_create; /dev/shm is not needed"
        findings.append(Finding(code, "ok", check, summary))
    return findings


def disks(context: Context) -> list[Finding]:
    """Look at Spark's local directories: may they be written, is there room, are they fast."""
    if not context.executors:
        return []
    check, findings = "disks", []
    parts = {name: facts.parts("disks") for name, facts in context.executors.items()}
    flat = [(name, disk) for name, disks_there in parts.items() for disk in disks_there]
    rate = {(n, _path(d)): r for n, d in flat if (r := d.number("bytes_per_second")) is not None}
    free = {(n, _path(d)): r for n, d in flat if (r := d.number("free")) is not None}
    broken = {(n, _path(d)): e for n, d in flat if (e := d.text("error")) is not None}
    remedy = "spark.local.dir (or the cluster manager's) on a fast local disk with room"
    if broken:
        (name, path), error = next(iter(broken.items()))
        summary = f"executor {name} cannot write to {path}: {error}"
        summary += f"; {len(broken)} of {len(flat)} directories" if len(flat) > 1 else ""
        findings.append(Finding(SpillError.code, "fail", check, summary, remedy))
    if full := {
        where: left for where, left in free.items() if left < _FREE and where not in broken
    }:
        (name, path), left = min(full.items(), key=lambda item: item[1])
        summary = f"executor {name} has {_bytes(left)} left in {path}, less than {_bytes(_FREE)}"
        findings.append(Finding(SlowDisk.code, "warn", check, summary, remedy))
    if slow := {where: speed for where, speed in rate.items() if speed < _WRITE}:
        (name, path), speed = min(slow.items(), key=lambda item: item[1])
        summary = (
            f"executor {name} writes {_bytes(speed)}/s to {path}, less than {_bytes(_WRITE)}/s"
        )
        findings.append(Finding(SlowDisk.code, "warn", check, summary, remedy))
    unknown = [
        name
        for name, disks_there in parts.items()
        if not disks_there or any((name, _path(d)) not in rate | broken for d in disks_there)
    ]
    if unknown:
        summary = f"the local directories of executor {those(unknown)}, or their speed, are unknown"
        findings.append(Finding(SlowDisk.code, "warn", check, summary, "run it again"))
    if not findings:
        summary = f"{len(flat)} local directories; the fullest has {_bytes(min(free.values(), default=0))} left, "
        summary += f"the slowest writes {_bytes(min(rate.values(), default=0))}/s (16 MB probe)"
        findings.append(Finding(SlowDisk.code, "ok", check, summary))
    return findings


def memory(context: Context) -> list[Finding]:
    """Compare what pools take with the memory of the container, or of the host."""
    if not context.executors:
        return []
    check, code = "memory", MemoryLimitTooSmall.code
    pool = conf_size(context.options.get("memory")) or 64 * _MB
    findings, fitting = [], []
    for name, facts in context.executors.items():
        processes = max(1, int(facts.number("slots") or 1))
        need = pool * processes
        demand = f"executor {name}: pools take {processes} x {_bytes(pool)} = {_bytes(need)}"
        room, of, remedy = _room(context, facts, need)
        if room is not None:
            fitting.append(f"{demand} of {_bytes(max(0, room))} {of}")
            if need > room:
                summary = f"{demand}; there is {_bytes(max(0, room))} {of}"
                findings.append(Finding(code, "warn", check, summary, remedy))
                break  # the others are alike
    if not findings and not fitting:
        summary = "neither the limit of the container nor the memory of the host is known"
        findings.append(Finding(code, "warn", check, summary, "run it again"))
    return findings or [Finding(code, "ok", check, fitting[0])]


def _room(context: Context, facts: Facts, need: float) -> tuple[float | None, str, str]:
    """Return the bytes for Python processes, of what they are, and what enlarges them."""
    conf = context.confs
    container = beside_heap(context.master, conf)
    if container is not None:
        wanted = -(-int(need * 1.5) // _MB)
        of = "of spark.executor.memoryOverhead and spark.executor.pyspark.memory"
        return container, of, f"spark.executor.memoryOverhead={wanted}m · a smaller memory"
    remedy = "a larger limit of the container · a smaller memory · fewer cores per executor"
    limit = facts.part("cgroup").number("limit")
    if limit is not None:
        return limit - heap(conf), "of the container's limit beside the heap", remedy
    return facts.number("memory_available"), "available on its host", remedy


def _numbers(values: Mapping[str, Facts], limit: str) -> dict[str, float]:
    """Return the limits that are known, by process; a limit that is not set is none."""
    return {n: v for n, facts in values.items() if (v := facts.number(limit)) is not None}


def _least(values: Mapping[str, Facts], limit: str, *, size: bool = False) -> str:
    numbers = _numbers(values, limit)
    if not numbers:
        return "unlimited"
    return _bytes(min(numbers.values())) if size else f"{min(numbers.values()):,.0f}"


def _who(context: Context, names: Iterable[str]) -> str:
    return f"executor {those(list(names))}" if context.master else "this process"


def _path(disk: Facts) -> str:
    return disk.text("path") or "an unknown directory"


def _seconds(offset: float) -> str:
    return f"{abs(offset):,.1f} s {'ahead of' if offset > 0 else 'behind'}"


def _bytes(count: float) -> str:
    """Return bytes for people, with two or three digits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"
