"""Take out of a built wheel what differs from folder to folder or from build to build, add the licences of all crates, pack again.

    python scripts/clean_wheel.py dist/headgate-*manylinux*.whl

maturin writes the list of the Rust crates (an SBOM in the format CycloneDX) with the folder of the sources, a
random number and the time of the build. SOURCE_DATE_EPOCH must be set: it becomes the time of all files.

Decision: ADR 0006.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cleaned(text: str, root: Path, seconds: int) -> str:
    """Return an SBOM without the folder of the sources, and with the time ``seconds`` after 1970."""
    sbom = json.loads(text.replace(f"file://{root}/", "file://"))
    sbom.pop("serialNumber", None)
    sbom["components"].sort(key=lambda part: part["bom-ref"])
    sbom["metadata"]["timestamp"] = datetime.fromtimestamp(seconds, UTC).isoformat()
    return json.dumps(sbom, indent=1) + "\n"


def with_licence(metadata: str, name: str) -> str:
    """Return the metadata of a wheel with one more file of licences."""
    line = f"License-File: {name}\n"
    last = metadata.rindex("License-File: ")
    end = metadata.index("\n", last) + 1
    return metadata[:end] + line + metadata[end:]


def main() -> int:
    """Rewrite the wheel that the command line names, in place."""
    from crate_licences import NAME, collected

    (wheel,) = [Path(name).resolve() for name in sys.argv[1:]]
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    tool = [sys.executable, "-m", "wheel"]
    with tempfile.TemporaryDirectory(prefix="headgate-wheel-") as folder:
        subprocess.run([*tool, "unpack", "--dest", folder, wheel], check=True)
        (unpacked,) = Path(folder).iterdir()
        (info,) = unpacked.glob("*.dist-info")
        (info / "licenses" / NAME).write_text(collected(), encoding="utf-8")
        metadata = info / "METADATA"
        with_line = with_licence(metadata.read_text(encoding="utf-8"), NAME)
        metadata.write_text(with_line, encoding="utf-8")
        for sbom in unpacked.glob("*.dist-info/sboms/*.json"):
            text = cleaned(sbom.read_text(encoding="utf-8"), ROOT, seconds)
            sbom.write_text(text, encoding="utf-8")
        wheel.unlink()
        subprocess.run([*tool, "pack", "--dest-dir", wheel.parent, unpacked], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
