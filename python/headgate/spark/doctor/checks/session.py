"""How the session is configured: slots, allocation, copies of tasks, lost executors, files that others may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import ConnectError, FilesReadable, NotBuiltError, NotEnoughSlots
from headgate.spark.doctor.context import those
from headgate.spark.doctor.findings import Finding
from headgate.spark.driver.blocks import READABLE
from headgate.spark.lost_executors import consequence, outliving
from headgate.spark.shuffle_files import unknown_shuffle, why_no_files

if TYPE_CHECKING:
    from headgate.spark.doctor.context import Context

_LEFT_TO_SPARK: Final = 'mode="auto" uses Spark\'s own repartition; mode="kept", lists of inputs and iterate() are refused'
_CLOSE: Final = "spark.io.encryption.enabled=true · executors with a umask of 077"


def scheduling(context: Context) -> list[Finding]:
    """Return the number of slots, and what Spark does by itself."""
    if not context.master:
        return []
    check, findings = "scheduling", []
    slots = context.slots
    if not slots:
        summary = "the number of slots is unknown" if slots is None else "there is no slot"
        remedy = "run it again once executors have registered"
        return [Finding(NotEnoughSlots.code, "warn", check, summary, remedy)]
    threshold = (context.confs.get("spark.speculation.task.duration.threshold") or "").strip()
    if threshold and context.is_set("spark.speculation"):
        summary = (
            f"spark.speculation.task.duration.threshold={threshold}: "
            "Spark copies the tasks of streaming jobs that run longer"
        )
        remedy = "leave it unset where streaming jobs run"
        findings.append(Finding(NotEnoughSlots.code, "warn", check, summary, remedy))
    if not findings:
        dynamic = "on" if context.is_set("spark.dynamicAllocation.enabled") else "off"
        speculation = "on" if context.is_set("spark.speculation") else "off"
        summary = f"{slots} slots; dynamic allocation {dynamic}, speculation {speculation}"
        findings.append(Finding(NotEnoughSlots.code, "ok", check, summary))
    return findings


def losses(context: Context) -> list[Finding]:
    """Say if Spark's shuffle fits kept exchanges, and if the loss of an executor fails one.

    On one host consumers map the files of a lost executor.
    """
    if not context.master:
        return []
    unknown = unknown_shuffle(context.confs)
    if unknown is not None:
        summary = f"{why_no_files(unknown)}: {_LEFT_TO_SPARK}"
        return [Finding(NotBuiltError.code, "warn", "losses", summary, unknown.remedy)]
    if context.master.startswith("local"):
        return []
    outlived = outliving(context.confs)
    summary = consequence(outlived)
    if outlived is None:
        return [Finding(ConnectError.code, "ok", "losses", summary)]
    return [Finding(ConnectError.code, "warn", "losses", summary, outlived.remedy)]


def files(context: Context) -> list[Finding]:
    """Say if others may read what Spark and Headgate write to local disks."""
    if not context.executors:
        return []
    check = "files"
    if context.is_set("spark.io.encryption.enabled"):
        summary = "Spark encrypts the blocks that it writes to local disks"
        return [Finding(FilesReadable.code, "ok", check, summary)]
    disks = {name: facts.parts("disks") for name, facts in context.executors.items()}
    others = {
        name: [disk.part("access").number("others") for disk in readers]
        for name, readers in disks.items()
    }
    readable = [name for name, readers in others.items() if any(readers)]
    if readable:
        summary = f"{READABLE} (local directories of executor {those(readable)})"
        return [Finding(FilesReadable.code, "warn", check, summary, _CLOSE)]
    unknown = [name for name, readers in others.items() if not readers or None in readers]
    if unknown:
        summary = f"it is unknown who may read the local directories of executor {those(unknown)}"
        return [Finding(FilesReadable.code, "warn", check, summary, _CLOSE)]
    return [Finding(FilesReadable.code, "ok", check, "local directories are closed to other users")]
