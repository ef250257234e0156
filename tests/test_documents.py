"""What the documents say is so: the example runs, the commands exist, the links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def broken_links(document, text):
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code)
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    return len(targets), [file for file in files if file and not (document.parent / file).exists()]


def unknown_targets(text):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = re.findall(r"(?:^    |`)make ([a-z]+)", text, re.MULTILINE)
    return len(named), sorted(set(named) - known)


def test_links_lead_somewhere():
    looked = 0
    for document in DOCUMENTS:
        links, broken = broken_links(document, document.read_text(encoding="utf-8"))
        looked += links
        assert not broken, f"{document.name}: {broken}"
    assert looked >= 15
    assert broken_links(ROOT / "README.md", "[a](none.md) [b](LICENSE)") == (2, ["none.md"])


def test_commands_exist():
    looked = 0
    for document in DOCUMENTS:
        commands, unknown = unknown_targets(document.read_text(encoding="utf-8"))
        looked += commands
        assert not unknown, f"{document.name}: {unknown}"
    assert looked >= 6
    assert unknown_targets("    make coffee\n") == (1, ["coffee"])


@pytest.mark.parametrize(
    "source",
    [
        "protocol/src/frame.rs",
        "protocol/src/handshake.rs",
        "record/src/event/mod.rs",
        "record/src/page/mod.rs",
    ],
)
def test_the_protocol_page_has_the_tables_of_the_sources(source):
    text = (ROOT / "rust_core" / source).read_text(encoding="utf-8")
    rows = re.findall(r"^//! (\|.*)$", text, re.MULTILINE)
    assert len(rows) >= 7
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").splitlines()
    missing = [row for row in rows if re.sub(r"\[(`[^`]+`)\]", r"\1", row) not in page]
    assert not missing, "\n".join(missing)


def test_help_lists_every_target():
    said = subprocess.run(
        ["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for target in ("demo", "test", "check", "bench", "wheel", "help"):
        assert f"make {target} " in said


def test_the_example_of_the_exchange_runs():
    page = (ROOT / "docs" / "exchange-and-flink.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], check=True, capture_output=True, text=True, timeout=60
    )
    rows = [{"user": "a", "n": 1}, {"user": "a", "n": 3}]
    assert sorted(done.stdout.splitlines()) == [str(rows), str([{"user": "b", "n": 2}])]


def test_the_checks_that_are_named_exist():
    page = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    named = {name.removesuffix("*") for name in re.findall(r"`((?:test_)?spec_\w+\*?)`", page)}
    sources = [*(ROOT / "rust_core").rglob("*.rs"), *(ROOT / "tests").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    missing = {name for name in named if f"fn {name}" not in text and f"def {name}" not in text}
    assert len(named) > 40
    assert not missing


@pytest.mark.timeout(400)
def test_the_examples_run(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert len([line for line in example.splitlines() if line.strip()]) <= 15
    rows = pa.table({"user": [n % 10 for n in range(1000)], "price": [1.5] * 1000})
    (tmp_path / "orders").mkdir()
    pq.write_table(rows, tmp_path / "orders" / "1.parquet", row_group_size=100)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*examples, "print(df.count(), stream.isStreaming)"])],
        check=False,
        capture_output=True,
        text=True,
        timeout=290,
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    for user in range(3):
        assert re.search(rf"\| +{user}\|1000\|", done.stdout), done.stdout
    assert "1000 True" in done.stdout
    written = pq.read_table(tmp_path / "totals")
    assert sorted(written["user"].to_pylist()) == list(range(10))
    assert set(written["price_sum"].to_pylist()) == {150.0}
