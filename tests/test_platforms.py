"""The sources fit other machines than this one: no page of 4 KiB, a name for each wheel, no Python without the GIL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Kernels for ARM may have pages of 64 KiB, so this number needs a name with a reason.
PAGE = re.compile(r"\b(4_?096|1 << 12|4 << 10|0xfff|4_?095)\b")
NAMED = re.compile(r"\bconst [A-Z_]+: |^[A-Z_]+: Final = |^\s+empty_data: 4_096,")


def unnamed(text):
    """Return the lines of code with a number of a page that has no name."""
    code = re.split(r"^#\[cfg\(test\)\]", text, flags=re.MULTILINE)[0]
    lines = (re.split(r"//|#|\"\"\"", line)[0] for line in code.splitlines())
    return [line for line in lines if PAGE.search(line) and not NAMED.search(line)]


def test_no_code_counts_with_pages_of_4_kib():
    rust = [path for path in ROOT.glob("rust_core/*/src/**/*.rs") if "fuzz" not in path.parts]
    files = [*rust, *(ROOT / "python" / "headgate").rglob("*.py")]
    assert len(files) > 500
    inner = {"tests", "simulator", "tests.rs", "model.rs", "view_contract.rs"}
    wrong = {
        str(path): lines
        for path in files
        if not inner & set(path.parts) and (lines := unnamed(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}
    assert unnamed("let end = at & !4095; // a page\n") == ["let end = at & !4095; "]
    assert unnamed("const STAGING: usize = 4096;\n") == []


@pytest.mark.parametrize(
    ("target", "tag"),
    [
        ("x86_64-unknown-linux-gnu", "manylinux_2_28_x86_64"),
        ("aarch64-unknown-linux-gnu", "manylinux_2_28_aarch64"),
        ("aarch64-unknown-linux-musl", "musllinux_1_2_aarch64"),
    ],
)
def test_each_target_has_a_wheel(target, tag):
    printed = subprocess.run(
        ["scripts/build_wheel.sh", "--name", target],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert re.fullmatch(rf"dist/headgate-[0-9.]+-cp311-abi3-{tag}\.whl\n", printed)


def test_another_system_has_none():
    done = subprocess.run(
        ["scripts/build_wheel.sh", "--name", "aarch64-apple-darwin"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "there is no wheel for the target aarch64-apple-darwin" in done.stderr


#: PyO3's facts of an interpreter without a GIL.
FREE_THREADED = """implementation=CPython
version=3.14
shared=true
target_abi=CPython-free_threaded-3.14
executable={executable}
pointer_width=64
build_flags=Py_GIL_DISABLED
suppress_build_script_link_lines=false
"""


@pytest.mark.soak
def test_a_python_without_the_gil_is_refused_by_the_build(tmp_path):
    config = tmp_path / "pyo3.txt"
    config.write_text(FREE_THREADED.format(executable=sys.executable), encoding="utf-8")
    environ = os.environ | {"PYO3_CONFIG_FILE": str(config), "CARGO_TARGET_DIR": str(tmp_path)}
    environ["PATH"] = f"{Path.home() / '.cargo' / 'bin'}:{environ['PATH']}"
    done = subprocess.run(
        ["cargo", "check", "--locked", "-p", "headgate-bindings"],
        cwd=ROOT,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode != 0
    assert "Headgate does not run on a free-threaded Python" in done.stderr
