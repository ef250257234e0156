"""The blocks of the pages that need a Spark session print what the pages say.

All pages run in one session of their own: polars keeps descriptors in its workers, and readers have Headgate's defaults.
"""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("polars")

from tests.kit.masters import registers
from tests.kit.own_driver import drive
from tests.kit.pages import ROOT, name, running

pytestmark = pytest.mark.timeout(700)  # the first test runs all pages

#: Pages with a format of their own.
NEW_SPARK = {"docs/write-a-source.md", "docs/sources.md"}
PAGES = running(on_spark=True)
CASES = [
    pytest.param(page, id=name(page), marks=[registers] if name(page) in NEW_SPARK else [])
    for page in PAGES
]
WRONG = "```python\nprint(spark.range(3).count())\n```\n\n```text\n4\n```\n"
RAISING = "```python\nspark.range(3).where('none')\n```\n"

BODY = """
sys.path.insert(0, {root!r})
from tests.kit.pages import told_on_spark
tell(**told_on_spark({pages!r}, spark, Path({folder!r})))
"""
CONFS = {"spark__headgate__mode": "auto", "spark__sql__shuffle__partitions": "4"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the defects of each page, by its path."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "wrong.md").write_text(WRONG)
    (folder / "raising.md").write_text(RAISING)
    pages = [str(page) for page in (*PAGES, folder / "wrong.md", folder / "raising.md")]
    body = BODY.format(root=str(ROOT), pages=pages, folder=str(folder))
    found = drive(body, "local[4]", folder, **CONFS)
    return {page.removeprefix(f"{folder}/"): wrong for page, wrong in found.items()}


@pytest.mark.soak
@pytest.mark.parametrize("page", CASES)
def test_the_blocks_print_what_the_page_says(page, told):
    assert told[str(page)] == []


def test_pages_that_print_something_else_or_raise_are_found(told):
    assert told["wrong.md"] == ["the block at line 2 prints:\n3\n"]
    (raised,) = told["raising.md"]
    assert 'raising.md", line 2, in <module>' in raised
    assert "AnalysisException" in raised


def test_there_are_pages_with_spark():
    assert len(PAGES) >= 6
