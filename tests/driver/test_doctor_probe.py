"""The doctor's probe of a process and its machine: each fact by itself, and nothing left of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle

from headgate.spark.doctor import probe
from headgate.spark.doctor.gather import Executor, _probe, cause_of


def disk(path):
    (found,) = probe.facts((str(path),), {})["disks"]
    return found


def test_the_facts_are_plain_and_none_is_missing():
    found = json.loads(json.dumps(probe.facts((), {})))
    assert found["problems"] == []
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["memfd_error"] is None
    assert found["limits"]["nofile"] is None or found["limits"]["nofile"] > 0
    assert found["memory_available"] > 0
    assert found["executor"] is None
    assert all(found[name] for name in ("headgate", "pyarrow", "pyspark", "libc", "machine"))
    assert not {"environ", "environment"} & found.keys()


def test_a_directory_is_measured_and_nothing_is_left_in_it(tmp_path):
    tmp_path.chmod(0o700)
    found = disk(tmp_path)
    assert found["bytes_per_second"] > 0
    assert found["free"] > 0
    assert found["access"] == {"others": 0}
    assert "error" not in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mode", "others"), [(0o755, 1), (0o700, 0), (0o711, 0), (0o750, 0)])
def test_a_directory_is_readable_for_others_if_all_above_it_are(mode, others, tmp_path):
    outer = tmp_path / "outer"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    for folder in (*reversed(tmp_path.parents), tmp_path):
        if (
            os.access(folder, os.W_OK)
            and folder.stat().st_uid == os.getuid()
            and "pytest" in folder.name
        ):
            folder.chmod(0o755)
    outer.chmod(0o755)
    inner.chmod(mode)
    above = all(folder.stat().st_mode & 0o001 for folder in inner.parents)
    assert disk(inner)["access"]["others"] == int(others and above)
    inner.chmod(0o755)
    outer.chmod(0o700)
    assert disk(inner)["access"]["others"] == 0


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    assert disk(tmp_path / "none")["error"] == "No such file or directory"


def test_a_disk_that_is_read_only_is_an_error(tmp_path):
    # In a mount namespace of its own, where root cannot write either.
    program = (
        "import sys; from headgate.spark.doctor import probe; import json\n"
        f"print(json.dumps(probe.facts(({str(tmp_path)!r},), {{}})['disks']))"
    )
    script = f'mount -t tmpfs -o ro none {tmp_path} && exec {sys.executable} -c "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", program], check=False, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    if done.returncode and "Operation not permitted" in done.stderr:
        pytest.skip("this machine gives no mount namespaces")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["error"] == "Read-only file system"
    assert found["free"] >= 0


def test_a_fact_that_cannot_be_found_leaves_the_others(monkeypatch):
    def broken():
        raise PermissionError("no /proc here")

    monkeypatch.setattr(probe, "_cgroup", broken)
    found = probe.facts((), {})
    assert "cgroup" not in found
    assert found["problems"] == ["cgroup: PermissionError: no /proc here"]
    assert found["limits"]


def test_a_package_that_cannot_be_imported_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = probe.facts((), {})
    assert found["pyarrow"] is None
    assert "ModuleNotFoundError" in found["pyarrow_error"]
    assert found["headgate"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Files of an authority, and of a certificate of it that is valid for 40 days."""
    folder = tmp_path_factory.mktemp("certificates")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    commands = [
        f"req -x509 {key} -keyout ca.key -out ca.pem -days 50 -subj /CN=authority",
        f"req {key} -keyout key.pem -out own.csr -subj /CN=own",
        "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 40 -out own.pem",
    ]
    for command in commands:
        subprocess.run(["openssl", *command.split()], check=True, cwd=folder, capture_output=True)
    names = {"tls_ca": "ca.pem", "tls_certificate": "own.pem", "tls_key": "key.pem"}
    return {name: str(folder / file) for name, file in names.items()}


def test_certificates_are_used_once_and_their_end_is_told(certificates):
    found = probe.facts((), certificates)["tls"]
    assert 39 < found["days"] <= 40


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls_key": "none.pem"}, "No such file"),
        ({"tls_ca": "tls_certificate"}, "verify failed"),
        ({"tls_certificate": "tls_ca"}, "mismatch"),
    ],
)
def test_certificates_that_cannot_be_used_say_why(certificates, changes, words):
    paths = certificates | {name: certificates.get(to, to) for name, to in changes.items()}
    assert words in probe.facts((), paths)["tls"]["error"].replace("_", " ").lower().replace(
        "no such", "No such"
    )


def test_the_function_for_executors_needs_no_headgate():
    function = cloudpickle.dumps(_probe({}))
    program = (
        "import sys, pickle\n"
        "assert not any('headgate' in name for name in sys.modules)\n"
        "function = pickle.loads(sys.stdin.buffer.read())\n"
        "(row,) = function(iter([1]))\n"
        "assert 'headgate' not in sys.modules\n"
        "sys.stdout.buffer.write(row)"
    )
    # As Spark gives pyspark to a Python that has nothing else.
    packages = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        check=False,
        input=function,
        capture_output=True,
        env={"PYTHONPATH": ":".join(map(str, packages)), "PATH": os.environ["PATH"]},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["headgate"] is None
    assert "No module named 'headgate'" in found["headgate_error"]
    assert found["limits"]
    assert found["problems"] == []


def test_the_function_is_pickled_by_value_and_headgate_by_reference_again():
    _probe({})
    assert b"headgate.spark.doctor.probe" in pickle.dumps(probe.facts)


def test_names_of_executors():
    assert Executor.at("executor_10.0.0.3_7") == Executor(
        "executor_10.0.0.3_7", "7", "7 (10.0.0.3)"
    )
    assert Executor.at("executor_a_b_7").name == "7 (a_b)"
    assert Executor.at("") == Executor("", "driver", "driver")


def test_the_error_of_a_task_is_told_without_the_stack_of_the_jvm():
    text = (
        "An error occurred.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
        "Task 0 failed 4 times, most recent failure: Lost task 0.3 (TID 5) (host executor 1): "
        "Traceback (most recent call last):\n  File\nOSError: no room\n\n"
        "\tat org.apache.spark.api.Python\n\tat more\nDriver stacktrace:"
    )
    assert cause_of(text).startswith("Lost task 0.3 (TID 5) (host executor 1): Traceback")
    assert cause_of(text).endswith("OSError: no room")
    assert cause_of("stopped") == "stopped"
