"""Python environments of other programs, in the cache folder: each has packages that do not fit ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
PYTHON = "python3.11"
#: Time limit in seconds of an installation.
INSTALL = 1200


class PeerError(RuntimeError):
    """Another program cannot be had, or what it was asked for failed or is wrong."""


def cache() -> Path:
    """Return the folder for what benches make once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def environment(name: str, packages: Sequence[str]) -> Path:
    """Return the Python of an environment in the cache folder; install its packages on first use.

    Raises:
        PeerError: There is no Python 3.11, or a package cannot be installed.
    """
    folder = cache() / name
    python, stamp = folder / "bin" / "python", folder / "packages"
    wanted = "\n".join(packages)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    base = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which(PYTHON)
    if base is None:
        raise PeerError(f"the environment {name} needs Python 3.11, and there is no {PYTHON}")
    print(f"installing {packages[0]} in {folder}", file=sys.stderr)
    install = [str(python), "-m", "pip", "install", "-q", *packages]
    for command in ([base, "-m", "venv", "--clear", str(folder)], install):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=INSTALL
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"not done after {INSTALL} s: {' '.join(command)}") from error
        if done.returncode:
            raise PeerError(f"failed: {' '.join(command)}\n{end(done.stderr)}")
    # Written last, so that a broken installation is not taken for a whole one.
    stamp.write_text(wanted, encoding="utf-8")
    return python


def downloaded(script: str, *arguments: str) -> Path:
    """Return the path that a script of the repository prints, which downloads what is there on first use.

    Raises:
        PeerError: It cannot be had.
    """
    command = [str(SCRIPTS / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise PeerError(f"failed with {done.returncode}: {' '.join(command)}")
    return Path(done.stdout.strip())


def end(text: str) -> str:
    """Return the last lines of what a program printed."""
    return "\n".join(text.splitlines()[-20:])
