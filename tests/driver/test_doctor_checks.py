"""The checks of the doctor: facts in, findings out. Any facts give findings, and none of them raises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ERRORS
from headgate.spark.doctor.checks import CHECKS, machine, network, session, software
from headgate.spark.doctor.context import Context, Crew, Facts, Pair
from headgate.spark.doctor.examination import findings_of
from headgate.spark.doctor.findings import Finding

GB = 1 << 30

DRIVER = {
    "headgate": "0.5.0",
    "python": "3.11.9",
    "pyarrow": "21.0.0",
    "pyspark": "4.1.4",
    "machine": "x86_64",
    "libc": "glibc 2.36",
}


def executor_facts(**changes):
    """Return the facts of an executor, with some that are changed."""
    return {
        **DRIVER,
        "executable": "/usr/bin/python3",
        "limits": {"nofile": 65_536, "nproc": 65_536, "as": None, "pids": None},
        "memfd_error": None,
        "cgroup": {"limit": 4 * GB},
        "memory_available": 8 * GB,
        "slots": 2,
        "disks": [
            {"path": "/data", "free": 100 * GB, "access": {"others": 0}, "bytes_per_second": 3e8}
        ],
        "tls": {},
        **changes,
    }


def names(number):
    return [f"{n} (host-{n})" for n in range(number)]


def crew(number=3, **changes):
    """Return what executors say of which each reached each other one at 1 GB/s."""
    rates = [Pair(a, b, 1e9, "tcp") for a in names(number) for b in names(number) if a != b]
    values = {
        "driver": "10.0.0.1:4040",
        "invited": tuple(names(number)),
        "joined": {name: f"10.0.0.{n + 2}:4000" for n, name in enumerate(names(number))},
        "pairs": rates,
    }
    return Crew(**{**values, **changes})


def context(executors=None, **changes):
    """Return the context of three executors, with some facts that are changed."""
    given = executors or {name: executor_facts() for name in names(3)}
    values = {
        "driver": Facts(DRIVER),
        "executors": {name: Facts(one) for name, one in given.items()},
        "clocks": dict.fromkeys(given, (0.01, 0.001)),
        "confs": {"spark.executor.memory": "1g"},
        "options": {"memory": 64 << 20, "tls": "auto", "mode": "auto"},
        "slots": 6,
        "crew": crew(len(given)),
        "master": "spark://host:7077",
    }
    return Context(**{**values, **changes})


FIRST, SECOND, THIRD = names(3)


def one(**changes):
    """Return a context whose second executor has other facts."""
    return context({FIRST: executor_facts(), SECOND: executor_facts(**changes)})


def only(found):
    (finding,) = found
    return finding


def worst(found):
    return max(found, key=lambda one: ["ok", "warn", "fail"].index(one.level))


def test_all_is_well():
    found = findings_of(context(), CHECKS)
    assert {one.level for one in found} == {"ok"}, found
    assert {one.check for one in found} >= {
        "executors", "headgate", "versions", "driver", "pairs", "speed", "tls",
        "clocks", "limits", "memfd", "disks", "memory", "scheduling", "losses", "files",
    }  # fmt: skip


#: Confs by which Spark moves shuffle files away from an executor that it removes.
MOVING = {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"}
CELEBORN = "org.apache.spark.shuffle.celeborn.SparkShuffleManager"
#: A plugin of Spark that finds local files again on the volume of a lost executor.
ON_VOLUMES = "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO"

# (check, context, level, code, words of the finding)
BROKEN = [
    (software.executors, context(silent={"7 (host-7)": ""}), "fail", "HG-1201", "no answer from executor 7"),
    (software.executors, context(silent={"7 (host-7)": "x\nTraceback (most\n  File\nOSError: no room"}),
     "fail", "HG-1201", "OSError: no room"),
    (software.executors, context(silent={"7 (host-7)": 'Cannot run program "python9"'}), "fail", "HG-1102", "python9"),
    (software.executors, context(missing=2), "warn", "HG-1201", "2 executors"),
    (software.executors, Context(master="yarn"), "fail", "HG-1201", "no executor"),
    (software.headgate, one(headgate=None, headgate_error="ModuleNotFoundError: No module named 'headgate'"),
     "fail", "HG-1102", "cannot import headgate in /usr/bin/python3: ModuleNotFoundError"),
    (software.headgate, one(headgate="0.4.0"), "fail", "HG-3003", "has headgate 0.4.0; the driver has 0.5.0"),
    (software.versions, one(python="3.12.1"), "fail", "HG-1202", "3.11 (the driver, executor 0 (host-0)), 3.12"),
    (software.versions, one(pyarrow="18.0.0"), "warn", "HG-1202", "18.0.0 (executor 1 (host-1))"),
    (software.versions, one(pyarrow=None), "fail", "HG-1102", "cannot import pyarrow"),
    (software.versions, one(machine="aarch64"), "warn", "HG-1202", "aarch64"),
    (software.versions, one(python=None), "warn", "HG-1202", "unknown on 1 (host-1)"),
    (machine.clocks, context(clocks={FIRST: (0, 0), SECOND: (-61.0, 0.1), THIRD: (0, 0)}),
     "warn", "HG-1203", "61.0 s behind the driver's"),
    (machine.clocks, context(clocks={}), "warn", "HG-1203", "unknown"),
    (machine.limits, one(limits={"nofile": 256}), "warn", "HG-1004", "256 open files"),
    (machine.limits, one(limits={"nofile": 65_536, "as": 32 << 20}), "fail", "HG-1004", "RLIMIT_AS"),
    (machine.limits, one(limits={"nofile": 65_536, "as": 512 << 20}), "warn", "HG-1004", "512 MiB"),
    (machine.limits, one(limits={}), "warn", "HG-1004", "unknown"),
    (machine.shared_memory, one(memfd_error="Operation not permitted"), "warn", "HG-1004", "not permitted"),
    (machine.disks, one(disks=[{"path": "/ro", "error": "Read-only file system"}]),
     "fail", "HG-5003", "cannot write to /ro: Read-only file system"),
    (machine.disks, one(disks=[{"path": "/d", "free": 9, "bytes_per_second": 1e9}]), "warn", "HG-5102", "9 B left"),
    (machine.disks, one(disks=[{"path": "/d", "free": 9 * GB, "bytes_per_second": 1e6}]),
     "warn", "HG-5102", "977 KiB/s to /d"),
    (machine.disks, one(disks=[]), "warn", "HG-5102", "unknown"),
    (machine.memory, one(cgroup={"limit": GB}, slots=4), "warn", "HG-5101", "4 x 64 MiB = 256 MiB"),
    (machine.memory, one(cgroup={}, memory_available=1 << 20), "warn", "HG-5101", "1.0 MiB available on its host"),
    (machine.memory, context(master="yarn", options={"memory": GB}), "warn", "HG-5101", "spark.executor.memoryOverhead"),
    (session.scheduling, context(slots=None), "warn", "HG-2101", "unknown"),
    (session.scheduling, context(confs={"spark.speculation.task.duration.threshold": "30s", "spark.speculation": "true"}), "warn", "HG-2101", "30s"),
    (session.losses, context(confs={"spark.shuffle.service.enabled": "true"}), "warn", "HG-3007", "service.enabled=true"),
    (session.losses, context(confs={"spark.shuffle.manager": CELEBORN}), "warn", "HG-2201", f"manager={CELEBORN} is not known"),
    (session.losses, context(master="local[2]", confs={"spark.shuffle.manager": CELEBORN}), "warn", "HG-2201", "manager=sort"),
    (session.losses, context(confs={"spark.shuffle.sort.io.plugin.class": "example.S3"}), "warn", "HG-2201", "example.S3"),
    (session.losses, context(confs={"spark.shuffle.sort.io.plugin.class": ON_VOLUMES}), "warn", "HG-3007", ON_VOLUMES),
    (session.losses, context(confs=MOVING), "warn", "HG-3007", "shuffleBlocks.enabled=false"),
    (session.files, one(disks=[{"access": {"others": 1}}]), "warn", "HG-1204", "may read"),
    (session.files, one(disks=[{}]), "warn", "HG-1204", "unknown"),
    (network.driver, context(crew=crew(joined={FIRST: "10.0.0.2:1"}, errors={SECOND: "no route"})),
     "fail", "HG-3008", "did not reach the driver at 10.0.0.1:4040: no route"),
    (network.driver, context(crew=crew(busy=(SECOND,), joined={FIRST: "a:1", THIRD: "b:1"})),
     "warn", "HG-1201", "no free slot"),
    (network.pairs, context(crew=crew(pairs=[Pair(FIRST, SECOND, error="10.0.0.3:1: refused", code="HG-3007")])),
     "fail", "HG-3007", "all towards executor 1 (host-1) at 10.0.0.3:4000; 1 (host-1) -> 0 (host-0): 10.0.0.3:1"),
    (network.pairs, context(crew=crew(pairs=[Pair(FIRST, SECOND, error="?", code="none")])), "fail", "HG-3007", "?"),
    (network.speed, context(crew=crew(pairs=[Pair(FIRST, SECOND, 1e7, "tcp"), *crew().pairs])),
     "warn", "HG-3101", "the slowest, 1 (host-1) -> 0 (host-0), has 10 MB/s, 0.01 of the median 1,000 MB/s"),
    (network.speed, context(crew=crew(pairs=[Pair(FIRST, SECOND)])), "warn", "HG-3101", "unknown"),
    (network.tls, context(options={"tls": "require", "tls_certificate": "c"}), "warn", "HG-3010", "unknown"),
    (network.tls, context({FIRST: executor_facts(tls={"error": "expired"})},
                          options={"tls": "require", "tls_certificate": "c"}), "fail", "HG-3010", "expired"),
    (network.tls, context({FIRST: executor_facts(tls={"days": 3.0})},
                          options={"tls": "require", "tls_certificate": "c"}), "warn", "HG-3010", "3 days"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "given", "level", "code", "words"), BROKEN)
def test_what_is_wrong_is_found(check, given, level, code, words):
    finding = worst(check(given))
    assert (finding.level, finding.code) == (level, code)
    assert words in finding.summary + finding.remedy, finding
    assert finding.remedy
    assert finding.error().code == code


# (check, context, words of the only finding, which is ok)
SOUND = [
    (machine.memory, context(master="yarn"), "of 384 MiB"),
    (machine.memory, context(master="k8s://https://h", confs={"spark.executor.memory": "4g"}), "of 1.6 GiB"),
    (machine.memory, context(master="yarn", confs={"spark.executor.memoryOverhead": "2048"}), "of 2.0 GiB"),
    (machine.clocks, context(clocks=dict.fromkeys(names(3), (0.9, 0.5))), "within 1,400 ms"),
    (machine.limits, context(), "address space unlimited"),
    (network.tls, context(options={"tls": "require"}), "TLS 1.3"),
    (network.tls, context(), "not encrypted"),
    (network.speed, context(crew=crew(2)), "2 pairs over TCP"),
    (session.files, context(confs={"spark.io.encryption.enabled": "TRUE"}), "encrypts"),
    (session.scheduling, context(confs={"spark.dynamicAllocation.enabled": "true"}), "dynamic allocation on"),
    (session.losses, context(), "runs again the producers"),
    (session.losses, context(confs={"spark.shuffle.manager": "SORT"}), "runs again the producers"),
    (session.losses, context(confs={"spark.decommission.enabled": "true"}), "runs again the producers"),
    (session.losses, context(confs={**MOVING, "spark.storage.decommission.shuffleBlocks.enabled": "false"}),
     "runs again the producers"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "given", "words"), SOUND)
def test_what_is_sound_gives_no_warning(check, given, words):
    finding = only(check(given))
    assert finding.level == "ok"
    assert words in finding.summary, finding


def test_the_files_of_a_lost_executor_are_mapped_where_all_executors_are_on_one_host():
    confs = {"spark.shuffle.service.enabled": "true"}
    assert session.losses(context(master="local-cluster[2,1,1024]", confs=confs)) == []


def test_a_clock_that_may_be_right_is_not_blamed():
    assert only(machine.clocks(context(clocks=dict.fromkeys(names(3), (5.0, 4.5))))).level == "ok"


def test_executors_that_did_not_answer_are_not_taken_for_sound():
    silent = context(executors={}, silent=dict.fromkeys(names(3), ""), clocks={}, crew=None)
    found = findings_of(replace(silent, executors={}), CHECKS)
    assert {one.check for one in found} == {"executors", "versions", "tls", "scheduling", "losses"}
    assert [one.level for one in found if one.check == "executors"] == ["fail"]


def test_this_machine_alone_has_no_executors_to_blame():
    found = findings_of(Context(driver=Facts(executor_facts())), CHECKS)
    assert {one.level for one in found} == {"ok"}, found
    assert {one.check for one in found} == {"headgate", "versions", "limits", "memfd"}


def test_a_check_that_raises_is_a_finding_and_the_others_are_asked():
    def broken(_):
        raise RuntimeError("no idea")

    failed, sound = findings_of(context(), [broken, software.executors])
    assert (failed.level, failed.code, failed.check) == ("fail", "HG-9001", "broken")
    assert "RuntimeError: no idea" in failed.summary
    assert sound.level == "ok"


# Any facts: of any type, under the names that the checks look for.
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=8)
)
KEYS = st.sampled_from([
    *executor_facts(), *executor_facts()["limits"], "path", "free", "access", "others",
    "bytes_per_second", "error", "days", "limit", "headgate_error", "problems",
])  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=5,
)
FACTS = st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=5)).map(Facts)
CONFS = st.dictionaries(
    st.sampled_from([
        "spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor",
        "spark.executor.minMemoryOverhead", "spark.executor.pyspark.memory", "spark.speculation",
        "spark.io.encryption.enabled", "spark.speculation.task.duration.threshold",
        "spark.shuffle.service.enabled", "spark.shuffle.sort.io.plugin.class", "spark.shuffle.manager", *MOVING,
    ]),
    st.one_of(st.sampled_from(["1g", "512", "true", "0.1", "-1", "nan", ""]), st.text(max_size=6)),
)  # fmt: skip
OPTIONS = st.dictionaries(
    st.sampled_from(["memory", "tls", "tls_certificate", "mode", "num_partitions"]),
    st.one_of(LEAVES, st.sampled_from(["require", "off", "pipelined"])),
)
NAMES = st.sampled_from(names(4))
RATES = st.one_of(st.none(), st.floats(0, 1e12))
PAIRS = st.builds(
    Pair, NAMES, NAMES, RATES, st.sampled_from(["tcp", "same_host", ""]), st.text(max_size=3), st.text(max_size=3)
)  # fmt: skip
CREWS = st.builds(
    Crew,
    st.text(max_size=4),
    st.lists(NAMES, max_size=4).map(tuple),
    st.dictionaries(NAMES, st.text(max_size=4)),
    st.dictionaries(NAMES, st.text(max_size=4)),
    st.lists(NAMES, max_size=2).map(tuple),
    st.lists(PAIRS, max_size=3),
    st.booleans(),
)
CONTEXTS = st.builds(
    Context,
    driver=FACTS,
    executors=st.dictionaries(NAMES, FACTS, max_size=2),
    silent=st.dictionaries(NAMES, st.text(max_size=30), max_size=2),
    clocks=st.dictionaries(NAMES, st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e9))),
    missing=st.integers(0, 3),
    confs=CONFS,
    options=OPTIONS,
    slots=st.one_of(st.none(), st.integers(0, 1000)),
    crew=st.one_of(st.none(), CREWS),
    master=st.sampled_from(["", "local[2]", "yarn", "k8s://h", "spark://h:7077"]),
)


@settings(max_examples=60, deadline=None)
@given(CONTEXTS)
def test_no_facts_crash_a_check(given_context):
    for check in CHECKS:
        for finding in check(given_context):
            assert isinstance(finding, Finding)
            assert finding.code in ERRORS
            assert finding.level in {"ok", "warn", "fail"}
            assert finding.summary
            assert finding.level == "ok" or finding.remedy


@pytest.mark.parametrize("name", ["limits", "memfd_error", "disks", "python"])
def test_a_missing_fact_is_unknown_and_not_taken_for_sound(name):
    facts = {key: value for key, value in executor_facts().items() if key != name}
    found = findings_of(context({FIRST: facts, SECOND: executor_facts()}), CHECKS)
    assert any("unknown" in one.summary and one.level == "warn" for one in found), found


def test_facts_of_the_driver_may_be_missing():
    found = findings_of(context(driver=Facts(dict.fromkeys(DRIVER))), CHECKS)
    assert worst(found).level == "fail"
    assert any("the driver has an unknown one" in one.summary for one in found)
