"""The pages that take longer than `make test` has, each in a process of its own: tutorial, migrate, iterate."""

import sys
from pathlib import Path

import pytest
from scripts.page_blocks import ROOT, Block, blocks, wrong_with
from tests.kit.pages import RUN_BY

PAGES = sorted(page for page, test in RUN_BY.items() if Path(test).name == Path(__file__).name)
#: The session that a page expects which makes none: one line above its first block.
SESSION = Block(
    line=0,
    language="python",
    mark="",
    code='from pyspark.sql import SparkSession; spark = SparkSession.builder.master("local[4]").getOrCreate()\n',
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_says(page):
    found = blocks((ROOT / page).read_text(encoding="utf-8"))
    makes_one = any("getOrCreate()" in block.code for block in found)
    assert wrong_with(found if makes_one else [SESSION, *found], Path(sys.executable)) == []


def test_there_are_three():
    assert PAGES == ["docs/iterate.md", "docs/migrate.md", "docs/tutorial.md"]
