"""The examples of docs/stream-state.md print what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stream-state.md"


def test_the_examples_print_what_the_page_says():
    blocks = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert len(blocks) == 3
    names = {}
    for code, expected in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, PAGE.name, "exec"), names)
        assert said.getvalue() == expected
