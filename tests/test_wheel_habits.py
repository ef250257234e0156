"""`import headgate` loads no other package and starts no thread; a round trip uses pyarrow's core.

`make wheel ARGS=--check` measures its time. Its checks of the SBOM and of folders are tested here with defects.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from scripts import clean_wheel

import headgate
from headgate import _native

PACKAGE = Path(headgate.__file__).parent

PROBE = """
import json, sys
before = set(sys.modules)
STATEMENT
with open("/proc/self/status") as status:
    threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
new = sorted(set(sys.modules) - before)
print(json.dumps({"threads": threads, "modules": new}))
"""

ROUND_TRIP = """
import headgate as hg, pyarrow as pa
with hg.ShuffleEnvironment() as env:
    partition = env.create_result_partition(1)
    batch = pa.record_batch({"n": [1, 2, 3]})
    with hg.RecordWriter(partition, batch.schema) as writer:
        writer.emit(batch)
    gate = env.create_input_gate([partition.address(0)], schema=batch.schema)
    assert pa.table(list(hg.RecordReader(gate))[0]).num_rows == 3
"""


def probe(statement):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.replace("STATEMENT", statement)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def tops(seen):
    return {name.partition(".")[0] for name in seen["modules"]}


def test_import_starts_no_thread_and_brings_nobody_along():
    seen = probe("import headgate")
    assert seen["threads"] == 1
    assert "headgate._native" in seen["modules"]
    assert not tops(seen) & {"numpy", "pandas", "pyarrow", "pyspark", "py4j", "polars"}
    assert not tops(seen) & {"asyncio", "multiprocessing", "ssl", "unittest"}


def imported_from(path):
    program = f"import sys; sys.path.insert(0, {str(path)!r}); import headgate"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    return done.stderr


def test_a_wheel_given_as_py_files_says_what_to_do(tmp_path):
    wheel = tmp_path / "headgate-0.1.0-cp311-abi3-linux_x86_64.whl"
    with ZipFile(wheel, "w") as archive:
        for path in PACKAGE.rglob("*.py"):
            archive.write(path, path.relative_to(PACKAGE.parent))
        archive.write(_native.__file__, "headgate/_native.abi3.so")
    said = imported_from(wheel)
    assert "[HG-1102] headgate was imported from an archive" in said
    assert f"import of {wheel}/headgate" in said
    assert "spark.archives" in said


def test_a_folder_without_the_native_module_says_so(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "headgate", ignore=shutil.ignore_patterns("*.so"))
    assert f"[HG-1102] headgate has no native module in {tmp_path}" in imported_from(tmp_path)


def test_importing_the_spark_layer_needs_no_spark():
    seen = probe("import headgate.spark")
    assert seen["threads"] == 1
    assert "headgate.spark" in seen["modules"]
    assert not tops(seen) & {"numpy", "pandas", "pyspark", "py4j"}


@pytest.mark.parametrize("part", ["acero", "csv", "dataset", "flight", "fs", "json", "parquet"])
def test_a_round_trip_uses_the_core_of_pyarrow_only(part, round_trip):
    assert "pyarrow.lib" in round_trip["modules"]
    assert f"pyarrow.{part}" not in round_trip["modules"]


@pytest.fixture(scope="module")
def round_trip():
    return probe(ROUND_TRIP)


def test_a_closed_environment_leaves_no_thread(round_trip):
    # pyarrow keeps threads of its own. Headgate must not add any.
    assert round_trip["threads"] <= probe("import pyarrow")["threads"]


SBOM = """{"serialNumber": "urn:uuid:1", "metadata": {"timestamp": "now"}, "components": [
{"bom-ref": "path+file:///home/a/headgate/rust_core/b#b@1", "name": "b", "version": "1"},
{"bom-ref": "crates#a@1", "name": "a", "version": "1"}]}"""


def test_an_sbom_is_the_same_from_any_folder():
    other = (
        SBOM.replace("/home/a/headgate", "/b").replace("uuid:1", "uuid:2").replace("now", "then")
    )
    cleaned = clean_wheel.cleaned(SBOM, Path("/home/a/headgate"), 0)
    assert cleaned == clean_wheel.cleaned(other, Path("/b"), 0)
    assert json.loads(cleaned) == {
        "metadata": {"timestamp": "1970-01-01T00:00:00+00:00"},
        "components": [
            {"bom-ref": "crates#a@1", "name": "a", "version": "1"},
            {"bom-ref": "path+file://rust_core/b#b@1", "name": "b", "version": "1"},
        ],
    }


def test_the_licences_of_crates_are_named_behind_those_of_headgate():
    metadata = "Name: a\nLicense-File: LICENSE\nLicense-File: NOTICE\nSummary: b\n"
    assert clean_wheel.with_licence(metadata, "C.txt") == metadata.replace(
        "NOTICE\n", "NOTICE\nLicense-File: C.txt\n"
    )


@pytest.fixture
def check_wheel(monkeypatch):
    scripts = Path(__file__).resolve().parent.parent / "scripts"
    monkeypatch.syspath_prepend(str(scripts))
    return importlib.import_module("check_wheel")


def test_a_member_that_names_a_folder_of_the_building_machine_is_found(check_wheel, tmp_path):
    wheel = tmp_path / "a.whl"
    folders = check_wheel.folders()
    assert f"{Path.home()}/" in folders
    with ZipFile(wheel, "w") as archive:
        archive.writestr("a.so", b"\0\1crates/a/src/lib.rs\0")
    assert check_wheel.check_folders(wheel, folders) == []
    for folder in folders:
        with ZipFile(wheel, "w") as archive:
            archive.writestr("a.so", b"\0\1" + folder.encode() + b"a.rs\0")
        (wrong,) = check_wheel.check_folders(wheel, folders)
        assert wrong.startswith("a.so names a folder of this machine: b'")


def test_a_wheel_without_a_whole_sbom_is_found(check_wheel, tmp_path):
    wheel = tmp_path / "a.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("a.txt", "")
    assert check_wheel.check_sbom(wheel) == ["0 SBOMs, not one"]
    with ZipFile(wheel, "w") as archive:
        archive.writestr("a-1.dist-info/sboms/a.cyclonedx.json", SBOM)
        archive.writestr("a-1.dist-info/licenses/THIRD-PARTY.txt", "\nrustls 1.0 (MIT)\n")
    assert "the SBOM lacks pyo3" in check_wheel.check_sbom(wheel)
    assert check_wheel.check_licences(wheel) == [
        f"the licence of {name} is missing" for name in ("pyo3", "zstd-sys")
    ]


def test_a_wheel_without_the_native_module_has_a_stand_in_and_no_crates(check_wheel, tmp_path):
    wheel = tmp_path / "headgate-0.1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("headgate/_native.py", "")
        archive.writestr("headgate-0.1.0.dist-info/METADATA", "Requires-Dist: pyarrow>=14\n")
    assert check_wheel.check_sbom(wheel) == check_wheel.check_licences(wheel) == []
    wrong = check_wheel.check_contents(wheel, check_wheel.NAME)
    assert "headgate/__init__.py is missing" in wrong
    assert not [line for line in wrong if "_native.py " in line or "py3-none-any" in line]
    with ZipFile(wheel, "a") as archive:
        archive.writestr("headgate/_native.abi3.so", "")
        archive.writestr("headgate-0.1.0.dist-info/sboms/a.cyclonedx.json", SBOM)
        archive.writestr("headgate-0.1.0.dist-info/licenses/THIRD-PARTY.txt", "")
    assert "headgate/_native.abi3.so does not belong in it" in check_wheel.check_contents(
        wheel, check_wheel.NAME
    )
    assert len(check_wheel.check_sbom(wheel)) == len(check_wheel.check_licences(wheel)) == 1
