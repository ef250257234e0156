"""Executes the notebooks of ``docs/notebooks``, and stores what they print, or compares it with what is stored.

    notebooks.py              all notebooks: store their outputs
    notebooks.py sessions     this one
    notebooks.py --check      store nothing; the status is 1 if an output differs or a cell fails

A stored notebook has nothing that another run would change: see `stored`. Decision: ADR 0042, in docs/adr.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from scripts.page_blocks import ROOT, activated

FOLDER = ROOT / "docs" / "notebooks"
#: Seconds that one cell may take.
_SECONDS = 300
#: Kinds of output that are stored: a table is both.
_KEPT = ("text/html", "text/plain")
_STYLE = re.compile(r"<style.*?</style>\n?", re.DOTALL)


def main() -> int:
    """Execute the notebooks that were asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(names))
    parser.add_argument("--check", action="store_true", help="compare, and store nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no notebook {', '.join(unknown)}; there are: {' '.join(names)}")
    wrong = [name for name in options.names or names if not is_good(name, check=options.check)]
    print(f"notebooks: {len(options.names or names)}, wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def is_good(name: str, *, check: bool) -> bool:
    """Execute a notebook, and store or compare it; return False if a cell failed or an output differs."""
    path, begun = FOLDER / f"{name}.ipynb", time.monotonic()
    before = path.read_text(encoding="utf-8")
    try:
        after = stored(executed(nbformat.reads(before, as_version=4)))
    except CellExecutionError as error:
        print(f"{name}: {error}")
        return False
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    if not check:
        path.write_text(after, encoding="utf-8")
        return True
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "stored", "executed", lineterm=""
    )
    found = list(lines)
    print(*found, sep="\n", end="\n" * bool(found), flush=True)
    return not found


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook after its cells ran in a new kernel, in a new folder, as in an activated environment.

    Raises:
        CellExecutionError: a cell raised.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-notebook-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        # A line of progress has times, and is drawn anew until it ends.
        shown = {"HEADGATE_PROGRESS": "off", "IPYTHONDIR": folder}
        os.environ.update({**activated(Path(sys.executable)), **shown})
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
        return client.execute(cleanup_kc=True)


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
