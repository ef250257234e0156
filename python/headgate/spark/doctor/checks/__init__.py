"""The checks of the doctor: small functions over facts, each of which can be tested without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.doctor.checks.machine import clocks, disks, limits, memory, shared_memory
from headgate.spark.doctor.checks.network import driver, pairs, speed, tls
from headgate.spark.doctor.checks.session import files, losses, scheduling
from headgate.spark.doctor.checks.software import executors, headgate, versions

if TYPE_CHECKING:
    from headgate.spark.doctor.context import Check

#: In the order in which the report shows them.
CHECKS: Final[tuple[Check, ...]] = (
    executors,
    headgate,
    versions,
    driver,
    pairs,
    speed,
    tls,
    clocks,
    limits,
    shared_memory,
    disks,
    memory,
    scheduling,
    losses,
    files,
)
