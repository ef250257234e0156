"""TPC-H data: ``tpchgen-cli`` makes it offline, the cache folder keeps it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benches import environments


def lineitem(scale: float, parts: int) -> Path:
    """Return the folder of the table's Parquet files; make them if they are missing.

    Args:
        scale: 1 is 6,001,215 rows.
        parts: number of files.
    """
    cache = environments.cache() / "tpch"
    folder = cache / f"scale-{scale:g}-in-{parts}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
            command = [program or "tpchgen-cli", "parquet", "-s", f"{scale:g}"]
            command += ["--tables=lineitem", f"--parts={parts}", f"--output-dir={scratch}"]
            subprocess.run(command, check=True, capture_output=True, timeout=600)
            # Renamed when complete, so that a broken run leaves nothing that looks like data.
            (Path(scratch) / "lineitem").rename(folder)
    return folder
