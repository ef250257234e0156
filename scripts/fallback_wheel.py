"""Make the wheel ``py3-none-any`` of a built one: all of it but the native module, for machines that no other wheel fits.

    python scripts/fallback_wheel.py dist/headgate-*-manylinux_2_28_x86_64.whl

SOURCE_DATE_EPOCH must be set: it becomes the time of all files. Decision: ADR 0063.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TAG = "py3-none-any"
#: Licences of the crates of the native module, which scripts/crate_licences.py collects.
LICENCES = "THIRD-PARTY.txt"
#: The module that stands for the native one.
STAND_IN = '''"""Stands for the native module, which the wheel {tag} does not have."""

from headgate._missing import absent

__version__ = "{version}"
__getattr__ = absent
'''


def leave_out_native(package: Path, version: str) -> None:
    """Take the native module out of a package, and put the module there that stands for it.

    Args:
        package: folder of the package.
        version: of Headgate.
    """
    for module in package.glob("_native.*.so"):
        module.unlink()
    (package / "_native.py").write_text(STAND_IN.format(tag=TAG, version=version), encoding="utf-8")


def _replace(file: Path, pattern: str, text: str) -> None:
    changed, times = re.subn(pattern, text, file.read_text(encoding="utf-8"))
    if times != 1:
        raise SystemExit(f"{file.name} has {pattern!r} {times} times, not once")
    file.write_text(changed, encoding="utf-8")


def main() -> int:
    """Write the wheel beside the one that the command line names."""
    (wheel,) = [Path(name).resolve() for name in sys.argv[1:]]
    version = wheel.name.split("-")[1]
    tool = [sys.executable, "-m", "wheel"]
    with tempfile.TemporaryDirectory(prefix="headgate-wheel-") as folder:
        subprocess.run([*tool, "unpack", "--dest", folder, wheel], check=True)
        (unpacked,) = Path(folder).iterdir()
        leave_out_native(unpacked / "headgate", version)
        (info,) = unpacked.glob("*.dist-info")
        # No crate is inside.
        for sbom in info.glob("sboms/*"):
            sbom.unlink()
        (info / "sboms").rmdir()
        (info / "licenses" / LICENCES).unlink()
        _replace(info / "METADATA", rf"(?m)^License-File: {re.escape(LICENCES)}\n", "")
        _replace(info / "WHEEL", r"Root-Is-Purelib: false", "Root-Is-Purelib: true")
        _replace(info / "WHEEL", r"(?m)^Tag: .*$", f"Tag: {TAG}")
        _replace(
            info / "METADATA",
            r"Operating System :: POSIX :: Linux",
            "Operating System :: OS Independent",
        )
        subprocess.run([*tool, "pack", "--dest-dir", wheel.parent, unpacked], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
