"""The archive of the recipe: a virtual environment with the wheel, created without a network.

A virtual environment can be unpacked anywhere, as its Python finds packages relative to itself. The
packages that the recipe installs from a registry are copied from the environment of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: Packages that the demo needs in the workers besides the wheel.
PACKAGES = ("numpy", "pyarrow")
#: Large folders that are not used at run time.
UNUSED = ("pyarrow/include/", "pyarrow/tests/", "pyarrow/src/", "numpy/_core/tests/")


def target_directory() -> str:
    """Return the folder where the scripts keep compiled crates, so that a second build is quick."""
    script = 'source scripts/env.sh && printf %s "$CARGO_TARGET_DIR"'
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    maturin = Path(sys.executable).parent / "maturin"
    path = f"{Path.home() / '.cargo' / 'bin'}:{os.environ['PATH']}"
    environ = os.environ | {"CARGO_TARGET_DIR": target_directory(), "PATH": path}
    # The wheel stays on this machine and may use its libraries. `make wheel` builds a portable one.
    words = ["--release", "--locked", "--compatibility", "linux", "--out", str(folder)]
    done = subprocess.run(
        [maturin, "build", *words, "--interpreter", sys.executable],
        cwd=ROOT,
        env=environ | {"VIRTUAL_ENV": str(Path(sys.executable).parent.parent)},
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("headgate-*.whl")
    return wheel


def pack(folder: Path, wheel: Path) -> Path:
    """Create the environment of the recipe and pack it; return the archive."""
    environment = folder / "environment"
    venv.EnvBuilder(symlinks=True).create(environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in PACKAGES:
        copy(name, packages)
    options = ["--no-deps", "--no-index", "--no-compile", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", packages, wheel],
        check=True,
        timeout=120,
    )
    archive = folder / "environment.tar.gz"
    # The lowest level is enough, as the archive is read three times and soon deleted.
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(environment, ".")
    shutil.rmtree(environment)
    return archive


def copy(name: str, packages: Path) -> None:
    """Copy an installed distribution, file by file."""
    files = distribution(name).files
    assert files, f"the metadata of {name} lists no files"
    copied = 0
    for file in files:
        text = str(file)
        if text.startswith(UNUSED) or "__pycache__" in text or ".." in file.parts:
            continue
        to = packages / file
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file.locate(), to)
        copied += 1
    assert copied > 10, f"{name} has only {copied} files"
