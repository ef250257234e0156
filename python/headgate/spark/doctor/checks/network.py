"""Executors, driver and each other: who reaches whom, how fast, and how encrypted."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

from headgate.errors import (
    ERRORS,
    ConnectError,
    CoordinatorError,
    ExecutorSilent,
    SlowLink,
    TlsError,
)
from headgate.spark.doctor.context import those
from headgate.spark.doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.doctor.context import Context, Facts

#: A pair is slow if the median of its kind is so many times as fast.
_SLOW: Final = 3.0
#: Fewest pairs of a kind for a median that says something.
_FEWEST: Final = 6
#: Days before its end in which a certificate is worth a warning.
_SOON: Final = 14
_OF_SLOW: Final = "look at the link, the CPU and the neighbours of that host · exclude it"
_LINKS: Final = {"tcp": "over TCP", "same_host": "within a host", "": "by an unknown link"}


def driver(context: Context) -> list[Finding]:
    """Say at which address executors reach the driver."""
    crew, check = context.crew, "driver"
    if crew is None or not crew.invited:
        return []
    findings: list[Finding] = []
    who = "processes of the executor" if crew.is_alone else "executors"
    if crew.busy:
        summary = f"executor {those(crew.busy)} had no free slot for the exchange between pairs"
        remedy = "run it again when slots are free"
        findings.append(Finding(ExecutorSilent.code, "warn", check, summary, remedy))
    lost = [name for name in crew.invited if name not in {*crew.joined, *crew.busy}]
    if lost:
        errors = [crew.errors[name] for name in lost if crew.errors.get(name)]
        why = f": {errors[0]}" if errors else ""
        summary = f"executor {those(lost)} did not reach the driver at {crew.driver or 'its address'}{why}"
        remedy = "spark.driver.host=<an address of the driver that executors can reach> · open its ports · free slots"
        findings.append(Finding(CoordinatorError.code, "fail", check, summary, remedy))
    if crew.joined:
        addresses = ", ".join(sorted(set(crew.joined.values()))[:4])
        summary = f"{len(crew.joined)} of {len(crew.invited)} {who} reach the driver at {crew.driver}, from {addresses}"
        findings.insert(0, Finding(CoordinatorError.code, "ok", check, summary))
    return findings


def pairs(context: Context) -> list[Finding]:
    """Say which pairs of executors do not reach each other."""
    crew, check = context.crew, "pairs"
    if crew is None or not crew.pairs:
        return []
    failed = [pair for pair in crew.pairs if pair.error]
    if not failed:
        number = len(crew.pairs)
        what = "two processes of the executor" if crew.is_alone else f"{number} of {number} pairs"
        return [Finding(ConnectError.code, "ok", check, f"{what} reach each other")]
    findings = []
    for code in sorted({pair.code for pair in failed}):
        those_pairs = [pair for pair in failed if pair.code == code]
        towards = Counter(pair.writer for pair in those_pairs)
        name, number = towards.most_common(1)[0]
        where = crew.joined.get(name, "an unknown address")
        summary = f"{len(those_pairs)} of {len(crew.pairs)} pairs failed"
        if number == len(those_pairs):
            summary += f", all towards executor {name} at {where}"
        summary += f"; {those_pairs[0].name}: {those_pairs[0].error}"
        kind = ERRORS.get(code, ConnectError)
        findings.append(Finding(kind.code, "fail", check, summary, kind.default_remedy))
    return findings


def speed(context: Context) -> list[Finding]:
    """Name the slowest pair, with its rate and the median of its kind of link."""
    crew, check = context.crew, "speed"
    if crew is None or not crew.pairs:
        return []
    findings = []
    for link in ("tcp", "same_host", ""):
        measured = {p: p.rate for p in crew.pairs if p.rate is not None and p.link == link}
        if not measured:
            continue
        slowest = min(measured, key=lambda pair: measured[pair])
        typical = median(measured.values())
        rate = measured[slowest]
        is_slow = rate * _SLOW < typical and len(measured) >= _FEWEST
        ratio = (
            f"{rate / typical:.2f} of the median {_rate(typical)}" if typical else "no rate at all"
        )
        summary = f"{len(measured)} pairs {_LINKS[link]}; the slowest, {slowest.name}, has {_rate(rate)}, {ratio}"
        remedy = _OF_SLOW if is_slow else ""
        findings.append(Finding(SlowLink.code, "warn" if is_slow else "ok", check, summary, remedy))
    late = [pair for pair in crew.pairs if pair.rate is None and not pair.error]
    if late:
        summary = f"the speed of {len(late)} of {len(crew.pairs)} pairs is unknown: there was no time, such as for {late[0].name}"
        findings.append(Finding(SlowLink.code, "warn", check, summary, "a smaller size"))
    return findings


def tls(context: Context) -> list[Finding]:
    """Say if connections are encrypted, and until when certificates of the deployment are valid."""
    if not context.master:
        return []
    check, options = "tls", context.options
    if options.get("tls") != "require":
        summary = "connections between hosts are not encrypted, and no conf of Spark asks for it"
        if options.get("tls") == "off":
            summary = "connections between hosts are not encrypted"
        return [Finding(TlsError.code, "ok", check, summary)]
    if not options.get("tls_certificate"):
        summary = "connections between hosts use TLS 1.3, with certificates that the processes make"
        return [Finding(TlsError.code, "ok", check, summary)]
    return [_certificates({name: there.part("tls") for name, there in context.executors.items()})]


def _certificates(facts: Mapping[str, Facts]) -> Finding:
    """Say until when the certificates of executors are valid."""
    check = "tls"
    bad = {name: error for name, tls in facts.items() if (error := tls.text("error")) is not None}
    remedy = "new certificates of the same authority in tls_certificate, tls_key and tls_ca on that executor"
    if bad:
        name, error = next(iter(bad.items()))
        summary = f"the certificates of executor {those(list(bad))} cannot be used: {error}"
        return Finding(TlsError.code, "fail", check, summary, remedy)
    ends = {name: end for name, tls in facts.items() if (end := tls.number("days")) is not None}
    if unknown := [name for name in facts if name not in ends]:
        summary = f"the certificates of executor {those(unknown)} are unknown"
        return Finding(TlsError.code, "warn", check, summary, remedy)
    if not ends:
        summary = "no executor has shown its certificates"
        return Finding(TlsError.code, "warn", check, summary, remedy)
    name = min(ends, key=ends.__getitem__)
    days = ends[name]
    summary = f"connections between hosts use TLS 1.3; the certificate of executor {name} is valid for {days:,.0f} days"
    if days < _SOON:
        return Finding(TlsError.code, "warn", check, summary, remedy)
    return Finding(TlsError.code, "ok", check, summary)


def _rate(value: float) -> str:
    return f"{value / 1e6:,.0f} MB/s" if value >= 1e7 else f"{value / 1e6:,.2f} MB/s"
