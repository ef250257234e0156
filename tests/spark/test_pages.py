"""The blocks of the pages that need a Spark session print what the pages say."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("polars")

from tests.pages import name, running, wrong_on_spark
from tests.spark.masters import registers

#: Pages with a format of their own, or with more than one partition of an iteration.
NEW_SPARK = {"docs/write-a-source.md", "docs/iterate.md", "docs/sources.md"}
PAGES = [
    pytest.param(page, id=name(page), marks=[registers] if name(page) in NEW_SPARK else [])
    for page in running(on_spark=True)
]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_print_what_the_page_says(page, spark, tmp_path):
    assert wrong_on_spark(page, spark, tmp_path) == []


def test_a_page_that_prints_something_else_is_found(spark, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(spark.range(3).count())\n```\n\n```text\n4\n```\n")
    assert wrong_on_spark(page, spark, tmp_path) == ["the block at line 2 prints:\n3\n"]
