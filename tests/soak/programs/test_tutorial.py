"""The tutorial, in a process of its own, as its reader would run it: equal rows, and the verdict that it names."""

import sys
from pathlib import Path

import pytest
from scripts.page_blocks import ROOT, blocks, wrong_with


@pytest.mark.timeout(400)
def test_the_tutorial_prints_what_it_says():
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert wrong_with(blocks(text), Path(sys.executable)) == []
