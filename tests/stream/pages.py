"""Runs the examples of a page one after the other, and compares what they print."""

import contextlib
import io
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def check_examples(page, count):
    """Check that a page has a number of examples with an output, and that they print it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL
    )
    assert len([output for _, output in blocks if output]) == count
    names = {}
    for code, expected in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, page, "exec"), names)
        assert said.getvalue() == expected
