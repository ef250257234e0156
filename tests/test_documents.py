"""The documents match the tree: examples run, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from scripts import page_blocks

from headgate.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def broken_links(document, text):
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code)
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    return len(targets), [file for file in files if file and not (document.parent / file).exists()]


#: Where a path in a page may begin.
BASES = ("", "rust_core", "rust_core/exchange/src", "python/headgate", "tests")
PATH = re.compile(
    r"`((?:rust_core|exchange|memory|record|protocol|python|tests|benches|scripts|docs|net)/[^`\s]+)`"
)


def unknown_paths(text):
    """Return the number of paths in a page, and those that do not exist; {a,b} is either."""
    named = [path for given in PATH.findall(text) for path in expanded(given) if "*" not in path]
    plain = [path.partition("::")[0] for path in named]
    return len(plain), [
        path for path in plain if not any((ROOT / base / path).exists() for base in BASES)
    ]


def expanded(path):
    match = re.search(r"\{([^}]*)\}", path)
    if match is None:
        return [path]
    ends = [path[: match.start()] + part + path[match.end() :] for part in match[1].split(",")]
    return [whole for end in ends for whole in expanded(end)]


def unknown_targets(text):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE)
    return len(named), sorted(set(named) - known)


def test_links_lead_somewhere():
    looked = 0
    for document in DOCUMENTS:
        links, broken = broken_links(document, document.read_text(encoding="utf-8"))
        looked += links
        assert not broken, f"{document.name}: {broken}"
    assert looked >= 15
    assert broken_links(ROOT / "README.md", "[a](none.md) [b](LICENSE)") == (2, ["none.md"])


def test_paths_exist():
    looked = 0
    for document in DOCUMENTS:
        paths, unknown = unknown_paths(document.read_text(encoding="utf-8"))
        looked += paths
        assert not unknown, f"{document.name}: {unknown}"
    assert looked >= 60
    assert unknown_paths("`docs/{index,none}.md` `scripts/*.sh`") == (2, ["docs/none.md"])


def untested(page):
    """Return the number of threats in a page, and those below which no file of tests is named."""
    threats = re.findall(r"^- \*\*(.*?)(?=\n\n|^- |\Z)", page, re.MULTILINE | re.DOTALL)
    wrong = []
    for threat in threats:
        text, _, named = threat.partition("\n  - ")
        files = re.findall(r"`([^`]*)`", named)
        tests = [file for file in files if re.search(r"(^|/)tests/.*(test_\w+\.py|\w+\.rs)$", file)]
        if not tests or tests != files or not all((ROOT / file).is_file() for file in files):
            wrong.append(text)
    return len(threats), wrong


#: Dotted words of the pages that are no names of Python: a file, a group of Kafka and a metric.
NOT_NAMES = {"headgate.conf", "headgate.kafka", "headgate.num_records_out"}
NAMES = re.compile(r"(?<![\w./\-\[])(?:headgate|hg)(?:\.[A-Za-z_]\w*)+(?![\w\-/])")


def unknown_names(text):
    """Return the number of names of Headgate in code of a page, and those that do not exist."""
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    named = {name for part in code for name in NAMES.findall(part)} - NOT_NAMES
    return len(named), sorted(name for name in named if not exists(name))


def exists(name):
    path, found = "headgate", import_module("headgate")
    for part in name.split(".")[1:]:
        path += f".{part}"
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = import_module(path)
        except ImportError:
            return False
    return True


def test_names_of_headgate_exist():
    pages = [*DOCUMENTS, *(ROOT / "python/headgate/catalogue/pages").rglob("*.md")]
    named = 0
    for page in pages:
        if page.name != "CHANGELOG.md":
            count, unknown = unknown_names(page.read_text(encoding="utf-8"))
            assert unknown == [], page
            named += count
    assert named > 100
    assert unknown_names("`headgate.no_such(1)` ```hg.per_key``` headgate.none") == (
        2,
        ["headgate.no_such"],
    )


def test_each_threat_names_tests_that_exist():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    looked, wrong = untested(page)
    assert looked >= 20
    assert wrong == []
    threat = "- **A stranger floods.** It is refused.\n"
    for named in ("", "`tests/test_none.py`", "`tests/conftest.py`", "see the tests"):
        assert len(untested(f"{threat}  - {named}\n")[1]) == 1, named
    assert len(untested(f"{threat}{threat}  - `tests/test_errors.py`\n")[1]) == 1
    assert untested(f"{threat}  - `tests/test_errors.py`\n") == (1, [])


#: Pages that are read in a terminal and reviewed in a diff.
NARROW = (
    "ARCHITECTURE.md",
    "README.md",
    "SECURITY.md",
    "docs/exchange.md",
    "docs/exchange-on-spark.md",
    "docs/faults.md",
    "docs/options.md",
    "docs/streams-readme.md",
    "docs/testing.md",
)
COLUMNS = 120


def wide(page):
    """Return the lines that are too wide; the name of one test cannot be broken."""
    return [
        line
        for line in page.splitlines()
        if len(line) > COLUMNS and not re.fullmatch(r"- `[^`]*`", line)
    ]


@pytest.mark.parametrize("page", NARROW)
def test_a_page_that_is_read_in_a_terminal_is_narrow(page):
    assert wide((ROOT / page).read_text(encoding="utf-8")) == []
    assert wide(f"- `{'a' * COLUMNS}` b") != []


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


def test_the_command_docs_lists_the_pages_and_prints_them(capsys):
    assert main(["docs"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["functions", "Functions: what `map` and `reduce` get and return"] in listed
    # The others show what is elsewhere: the README, error pages, files of the root.
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {name for name, _ in listed} == {
        "architecture",
        "errors",
        "index",
        "safety",
    }
    for name, _ in listed:
        assert main(["docs", name]) == 0
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert capsys.readouterr().out == text


def test_the_command_docs_offers_close_pages(capsys):
    assert main(["docs", "docs/kept.md", "cokbook"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("# Kept exchanges")
    assert said.err.splitlines() == [
        "there is no page 'cokbook'",
        "  close   cookbook",
        "  close   calls-cookbook",
        "  close   notebooks",
        "  more    python -m headgate docs",
    ]


def test_help_lists_every_target():
    said = subprocess.run(
        ["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for target in ("demo", "test", "check", "bench", "wheel", "release-check", "help"):
        assert f"make {target} " in said


def uncited(page):
    """Return the number of files and folders that a decision binds, and those that do not name it."""
    number = page.name[:4]
    head = page.read_text(encoding="utf-8").partition("\n## ")[0]
    bound = [page.parent / target for target in re.findall(r"\]\((\.\./[^)]+)\)", head)]
    missing = []
    for path in bound:
        files = [path] if path.is_file() else [*path.rglob("*.rs"), *path.rglob("*.py")]
        texts = (file.read_text(encoding="utf-8") for file in files)
        if not any(f"ADR {number}" in text for text in texts):
            missing.append(f"{page.name}: {path.name}")
    return len(bound), missing


def test_decisions_and_the_code_that_they_bind_name_each_other(tmp_path):
    pages = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    assert len(pages) >= 21
    for page in pages:
        looked, missing = uncited(page)
        assert looked, f"{page.name} names no code"
        assert not missing, missing
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "a.rs").write_text("//! ADR 0001\n", encoding="utf-8")
    (tmp_path / "b.rs").write_text("//! none\n", encoding="utf-8")
    page = tmp_path / "docs" / "adr" / "0001-x.md"
    page.write_text("Code: [a](../../a.rs), [b](../../b.rs)\n\n## Context\n", encoding="utf-8")
    assert uncited(page) == (2, ["0001-x.md: b.rs"])


def examples(page):
    """Return the Python blocks of a page that run."""
    return [block for block in page_blocks.blocks(page.read_text(encoding="utf-8")) if block.runs]


EXAMPLES = examples(page_blocks.README)
#: Of docs/streams-readme.md.
STREAMS = examples(page_blocks.STREAMS)


def test_the_readmes_have_short_examples_with_their_output():
    assert (len(EXAMPLES), len(STREAMS)) == (2, 1)
    for example in (*EXAMPLES, *STREAMS):
        assert len([line for line in example.code.splitlines() if line.strip()]) <= 24
        assert example.output


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_example_with_files_prints_what_the_readme_says():
    assert not page_blocks.wrong_with([EXAMPLES[1]], Path(sys.executable))


def test_the_example_of_a_stream_prints_what_the_readme_says():
    assert not page_blocks.wrong_with(STREAMS, Path(sys.executable), times=2)


@pytest.mark.timeout(400)
def test_the_first_example_has_the_partitions_of_sparks_job_and_prints_what_the_readme_says(
    tmp_path,
):
    text = page_blocks.README.read_text(encoding="utf-8")
    (call,) = re.findall(r"A misspelled column, `(.*)`:", text)
    (shown,) = re.findall(r"^```text\n(headgate\.errors\..*?)^```$", text, re.MULTILINE | re.DOTALL)
    code = f"""{EXAMPLES[0].code}
def partitions(df):
    return [sorted(rows) for rows in df.rdd.glom().collect()]


print(partitions(result) == partitions(plain))
{call}
"""
    done = page_blocks.run(code, Path(sys.executable), tmp_path)
    assert EXAMPLES[0].output.strip() in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
    assert done.stderr.rstrip().endswith(shown.rstrip())


def test_a_second_run_that_fails_is_found():
    second = page_blocks.Block(0, "python", "", "import os\nos.mkdir('a')")
    (again,) = page_blocks.wrong_with([second], Path(sys.executable), times=2)
    assert again.startswith("run 2:")
    assert "FileExistsError" in again
