"""Executes notebooks of ``docs/notebooks`` and stores what they print, or tells what they print otherwise.

    python -m scripts.notebooks             all notebooks
    python -m scripts.notebooks sessions    this one

A stored notebook has nothing that another run would change: see `stored`. Decision: ADR 0042, in docs/adr.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from scripts.page_blocks import ROOT, activated

FOLDER = ROOT / "docs" / "notebooks"
#: Seconds that one cell may take.
_SECONDS = 300
#: Kinds of output that are stored: a table is both.
_KEPT = ("text/html", "text/plain")
_STYLE = re.compile(r"<style.*?</style>\n?", re.DOTALL)


def main() -> int:
    """Execute and store the notebooks that were asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(names))
    asked = parser.parse_args().names or names
    if unknown := sorted(set(asked) - set(names)):
        parser.error(f"no notebook {', '.join(unknown)}; there are: {' '.join(names)}")
    failed = []
    for name in asked:
        path, begun = FOLDER / f"{name}.ipynb", time.monotonic()
        try:
            path.write_text(again(path), encoding="utf-8")
        except CellExecutionError as error:
            print(f"{name}: {error}")
            failed.append(name)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    print(f"notebooks: {len(asked)}, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def difference(path: Path) -> list[str]:
    """Execute a notebook; return the lines in which it differs from what is stored.

    Raises:
        CellExecutionError: a cell raised.
    """
    before, after = path.read_text(encoding="utf-8"), again(path)
    lines = before.splitlines(), after.splitlines()
    return list(difflib.unified_diff(*lines, "stored", "executed", lineterm=""))


def again(path: Path) -> str:
    """Execute a notebook; return it as it is stored.

    Raises:
        CellExecutionError: a cell raised.
    """
    return stored(executed(nbformat.read(path, as_version=4)))


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook after its cells ran in a new kernel, in a new folder, as in an activated environment."""
    with tempfile.TemporaryDirectory(prefix="headgate-notebook-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        # A line of progress has times, and is drawn anew until it ends.
        shown = {"HEADGATE_PROGRESS": "off", "IPYTHONDIR": folder}
        # A port that is free now may be taken when the kernel binds it, so there is none.
        kernel = AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
        )
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=_SECONDS,
            startup_timeout=_SECONDS,
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        )
        environment = activated(Path(sys.executable)) | shown
        return client.execute(cleanup_kc=True, env=environment)


def stored(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook as it is stored.

    It has no times, no versions, no styles, and nothing that went to stderr, where the JVM logs.
    """
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [plain(o) for o in cell.outputs if o.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return nbformat.writes(nbformat.from_dict(notebook)) + "\n"


def plain(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return an output with text and tables only, without the styles that pandas gives to each table."""
    if "data" in output:
        output.data = {kind: output.data[kind] for kind in _KEPT if kind in output.data}
        output.metadata = {}
        if "text/html" in output.data:
            output.data["text/html"] = _STYLE.sub("", output.data["text/html"])
    return output


if __name__ == "__main__":
    sys.exit(main())
