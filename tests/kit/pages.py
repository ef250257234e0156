"""The pages with blocks, and how those run that need a Spark session."""

import contextlib
import io
import sys
import tempfile
import traceback
import types
from pathlib import Path

from scripts.page_blocks import README, ROOT, Block, blocks, program, wrong_outputs

#: Pages of the repository whose blocks are Python, beside those of the errors (tests/test_catalogue.py).
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
#: Pages whose blocks a test of their own runs, as they need more than a session, or more time than `make test` has.
RUN_BY = {
    "README.md": "tests/test_documents.py",
    "docs/calls-cookbook.md": "tests/soak/programs/test_calls_cookbook.py",
    "docs/cookbook.md": "tests/soak/programs/test_cookbook.py",
    "docs/iterate.md": "tests/soak/programs/test_long_pages.py",
    "docs/streams-readme.md": "tests/test_documents.py",
    "docs/migrate.md": "tests/soak/programs/test_long_pages.py",
    "docs/tutorial.md": "tests/soak/programs/test_long_pages.py",
}


def name(page: Path) -> str:
    """Return the path of a page below the root."""
    return str(page.relative_to(ROOT))


def found_in(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    return blocks(page.read_text(encoding="utf-8"))


def running(*, on_spark: bool) -> list[Path]:
    """Return the pages with blocks to run that need a session, or those that need none."""
    found = []
    for page in PAGES:
        runs = [block for block in found_in(page) if block.runs]
        needs = any(block.uses_spark for block in runs)
        if runs and needs == on_spark and name(page) not in RUN_BY:
            found.append(page)
    return found


def told_on_spark(pages: list[str], spark, folder: Path) -> dict[str, list[str]]:
    """Run pages with a session, each in a new folder; return for each what is wrong, or its traceback."""
    found = {}
    for page in pages:
        try:
            found[page] = wrong_on_spark(
                Path(page), spark, Path(tempfile.mkdtemp(prefix="page-", dir=folder))
            )
        except Exception:  # noqa: BLE001 - the other pages run all the same
            found[page] = [traceback.format_exc()]
    return found


def wrong_on_spark(page: Path, spark, folder: Path) -> list[str]:
    """Run a page with a session; return the blocks that print something else."""
    from pyspark import cloudpickle

    found, said = found_in(page), io.StringIO()
    # Workers cannot import the module of a page, so its functions and classes are sent by value.
    module = types.ModuleType("headgate_page")
    module.spark = spark
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(said):
            exec(compile(program(found), str(page), "exec"), module.__dict__)
    finally:
        tempfile.tempdir = before
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]
        module.__dict__.clear()  # the plans of the page are garbage, so the driver forgets them
    return wrong_outputs(found, said.getvalue())


__all__ = ["PAGES", "README", "ROOT", "RUN_BY", "found_in", "name", "running", "told_on_spark"]
