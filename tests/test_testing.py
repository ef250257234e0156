"""Every test has a tier, and docs/testing.md says what each file of tests would find broken."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from scripts import soak
from tests.conftest import listed

ROOT = Path(__file__).resolve().parent.parent

PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
#: In the table: files and folders below the root, as the second and third cell name them.
NAMED = re.compile(r"`((?:tests|rust_core|scripts|benches)/[\w./*-]+)`")


def files_of_tests():
    python = (ROOT / "tests").rglob("test_*.py")
    rust = (ROOT / "rust_core").glob("*/tests/*.rs")
    return [path.relative_to(ROOT).as_posix() for path in (*python, *rust)]


def covered(file, named):
    return any(Path(file).match(name) or file.startswith(name.rstrip("/") + "/") for name in named)


def test_every_file_of_tests_has_a_line():
    files, named = files_of_tests(), NAMED.findall(PAGE)
    assert len(files) > 150
    assert [file for file in files if not covered(file, named)] == []
    assert not covered("tests/nowhere/test_nothing.py", named)


def test_no_two_files_of_tests_have_one_name():
    counted = Counter(Path(file).name for file in files_of_tests() if file.endswith(".py"))
    assert len(counted) > 150
    assert [name for name, files in counted.items() if files > 1] == []


def test_everything_the_page_names_exists():
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []


def test_every_folder_is_run_by_make_test_or_by_a_part_of_the_soak():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    quick = settings["tool"]["pytest"]["testpaths"]
    long = {word for part in soak.PARTS for word in part.command if word.startswith("tests/")}
    files = [file for file in files_of_tests() if file.startswith("tests/")]
    assert [file for file in files if not covered(file, {*quick, *long})] == []
    assert [name for name in {*quick, *long} if not list(ROOT.glob(name))] == []
    assert not [name for name in quick if name.startswith("tests/soak")]


def test_the_two_runs_of_make_test_have_what_pytest_alone_has():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    script = (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8")
    commands = re.findall(
        r'^"\$\{pytest\[@\]\}" --numprocesses \d (.*) \|\| failed=1$', script, re.MULTILINE
    )
    assert sorted(" ".join(commands).split()) == sorted(settings["tool"]["pytest"]["testpaths"])
    assert commands[1] == "tests/spark"


def test_what_make_fuzz_builds_exists():
    """Cargo refused the profile for as long as nobody ran the fuzzers."""
    profiles = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["profile"]
    asked = {
        profile
        for script in (ROOT / "scripts").glob("*.sh")
        for profile in re.findall(r"--profile[ =](\w+)", script.read_text(encoding="utf-8"))
    }
    assert "fuzz" in asked
    assert asked <= {*profiles, "dev", "release"}
    manifest = tomllib.loads((ROOT / "rust_core/fuzz/Cargo.toml").read_text(encoding="utf-8"))
    corpora = {folder.name for folder in (ROOT / "rust_core/fuzz/corpus").iterdir()}
    assert {program["name"] for program in manifest["bin"]} == corpora


def test_a_long_test_that_is_listed_exists():
    for test in listed():
        file, *_, name = test.split("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


SLOW = """
import time, pytest
def test_slow(): time.sleep(0.3)
class TestSlow:
    def test_slow(self): time.sleep(0.2)
@pytest.mark.soak
def test_of_the_soak(): time.sleep(0.2)
def test_quick(): pass
"""
#: A run whose limits are a hundredth of the real ones, on a machine that tells of this many seconds of waits.
RUN = """
import itertools, sys, pytest
from tests import conftest
conftest.LONG, conftest.TOO_LONG = 0.05, 0.075
conftest.stalled = itertools.count(0, float(sys.argv[1])).__next__
options = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", sys.argv[3]]
sys.exit(pytest.main([sys.argv[2], *options], plugins=[conftest]))
"""


@pytest.mark.parametrize(
    ("strict", "waits", "status"), [("", "0", 0), ("1", "0", 1), ("1", "9", 0), ("1", "inf", 0)]
)
def test_a_strict_run_fails_for_tests_that_are_long_by_themselves(tmp_path, strict, waits, status):
    file = tmp_path / "test_slowly.py"
    file.write_text(SLOW, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", RUN, waits, file, tmp_path],
        cwd=ROOT,
        env=os.environ | {"HEADGATE_TEST_STRICT": strict, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stdout
    named = re.findall(r"^[\d.]+ s  (\S+)$", ran.stdout, re.MULTILINE)
    # The longer one comes first, which other load decides.
    assert sorted(named) == ["test_slowly.py::TestSlow::test_slow", "test_slowly.py::test_slow"]
    assert ("too long by themselves" in ran.stdout) == bool(status)


def test_the_page_lists_each_part_of_the_soak():
    assert [part.name for part in soak.PARTS if f"| {part.name} |" not in PAGE] == []


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (["README.md"], {"site", "wheel", "fallback"}),
        (["docs/metrics.md"], {"site"}),
        (["tests/test_site.py"], set()),
        (["rust_core/memory/src/pool.rs"], {"loom", "instructions", "sanitize", "schedules"}),
        (["tests/soak/chaos/test_kept_chaos.py"], {"chaos"}),
    ],
)
def test_what_changed_says_which_parts_run(changed, parts):
    assert {part.name for part in soak.PARTS if soak.is_about(part, changed)} == parts


def test_a_part_that_does_not_fit_the_time_is_named_and_one_that_fails_ends_with_1(capfd):
    def part(name, code, minutes):
        command = (sys.executable, "-c", f"raise SystemExit({code})")
        return soak.Part(name, "nothing", command, minutes, ())

    assert soak.run([part("good", 0, 1), part("long", 0, 99)], 10) == 0
    said = capfd.readouterr().out
    assert "good         passed" in said
    assert "long         left out: takes 99 min, 10 are left" in said
    slow = soak.Part(
        "slow", "nothing", (sys.executable, "-c", "import time; time.sleep(60)"), 0, ()
    )
    assert soak.run([slow], 0.01) == 0
    assert "slow         stopped, as the time was over, in 0.0 min" in capfd.readouterr().out
    assert soak.run([part("bad", 3, 1), part("good", 0, 1)], 10) == 1
    said = capfd.readouterr().out
    assert "bad          FAILED with status 3" in said
    assert "good         passed" in said
