"""Checks of an exchange against the application, with their numbers. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate._units import size_text
from headgate.spark.confs import is_true
from headgate.spark.explained.fields import Check
from headgate.spark.lost_executors import consequence, outliving
from headgate.spark.slots import is_dynamic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.explained.fields import Memory
    from headgate.spark.plan.rules import Plan

_SPECULATION: Final = "on: of two attempts at a task exactly one counts"
_WORKERS: Final = "the driver's and the workers' Python are of one version, and import headgate: checked on this host"
_ELSEWHERE: Final = (
    "the Python of the workers is on other hosts; headgate.spark.doctor(spark) examines it there"
)
_SERVER: Final = "the Python of the workers is on the server, and not seen by its client"


def checks_of(plan: Plan, memory: Memory) -> tuple[Check, ...]:
    """Return the checks.

    Args:
        plan: of the exchange.
        memory: of its workers.
    """
    checks = [_slots(plan)]
    if not plan.session.on_connect:
        copies = is_true(plan.session.conf, "spark.speculation")
        speculation = Check("speculation", True, _SPECULATION if copies else "off")
        checks += [_allocation(plan.session.conf), speculation]
    if plan.mode == "kept" and plan.session.through == "hosts":
        files = outliving(plan.session.conf)
        remedy = "" if files is None else f": {files.remedy}"
        checks.append(Check("lost executors", files is None, consequence(files) + remedy))
    if memory.fits is not None and memory.total is not None and memory.limit is not None:
        sizes = f"{size_text(memory.total)} of {size_text(memory.limit)} by {memory.limited_by}"
        less = "" if memory.fits else ': memory="16m", or a larger limit'
        checks.append(Check("memory", memory.fits, sizes + less))
    if plan.session.on_connect:
        checks.append(Check("versions", None, _SERVER))
    else:
        is_here = plan.session.master.startswith("local")
        checks.append(Check("versions", is_here or None, _WORKERS if is_here else _ELSEWHERE))
    return tuple(checks)


def _slots(plan: Plan) -> Check:
    slots, origin = plan.session.slots.number, plan.session.slots.origin
    if plan.session.on_connect:
        return Check("slots", None, f"planned with {slots}: {origin}")
    if slots == 0:
        return Check("slots", None, f"no slot is there yet: {origin}")
    waves = -(-plan.partitions // slots)
    turns = "at once" if waves == 1 else f"in {waves} waves"
    return Check("slots", True, f"{slots}, so {plan.partitions} consumers run {turns} ({origin})")


def _allocation(conf: Mapping[str, str]) -> Check:
    if not is_dynamic(conf):
        return Check("dynamic allocation", True, "off")
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    limit = "any number of" if most is None else f"at most {most}"
    return Check("dynamic allocation", True, f"on, with {limit} executors")
