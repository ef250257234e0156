"""The checks of a release find what they look for: crates, licences, lines without tests, actions of workflows."""

import importlib
import re
from pathlib import Path

import pytest
from scripts import crate_licences, holes

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: An action of another repository, the commit, and the version for readers and for dependabot.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.fixture
def check_crates(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("check_crates")


def test_a_crate_that_the_sbom_lacks_and_a_licence_that_is_not_allowed_are_named(check_crates):
    listed = {
        "a 1.0.0": {"licenses": [{"expression": "MIT OR GPL-3.0-only"}]},
        "b 1.0.0": {"licenses": [{"license": {"id": "GPL-3.0-only"}}]},
        "c 1.0.0": {"licenses": [{"expression": "(MIT OR Apache-2.0) AND GPL-3.0-only"}]},
        "d 1.0.0": {},
        "macro 1.0.0": {"licenses": [{"expression": "CC0-1.0"}]},
    }
    crates = {*listed, "a 2.0.0"} - {"macro 1.0.0"}
    wrong = check_crates.defects(listed, crates, {"MIT", "Apache-2.0"})
    assert wrong == [
        "a 2.0.0 is linked, and the SBOM lacks it",
        "b 1.0.0 has the licence GPL-3.0-only",
        "c 1.0.0 has the licence (MIT OR Apache-2.0) AND GPL-3.0-only",
        "d 1.0.0 has the licence of nobody",
    ]


def test_the_linked_crates_are_those_of_the_native_module(check_crates):
    names = {crate.partition(" ")[0] for crate in check_crates.linked()}
    assert {"headgate-exchange", "pyo3", "rustls", "zstd-sys"} <= names
    assert not names & {"headgate-bindings", "proptest", "loom", "syn"}


def crate(folder, name, **files):
    """Lay out the package of a crate; return what cargo says of it."""
    place = folder / name
    place.mkdir()
    for file, text in files.items():
        (place / file).write_text(text, encoding="utf-8")
    return {"manifest_path": str(place / "Cargo.toml"), "license": "MIT"}


def test_each_text_of_a_licence_is_there_once_with_all_crates_that_have_it(tmp_path):
    texts = crate_licences.texts(
        {
            "b 1.0.0": crate(tmp_path, "b", LICENSE="Text.\n", README="Read."),
            "a 2.0.0": crate(tmp_path, "a", LICENCE="Text.", NOTICE="Of a.\n"),
            "c 1.0.0": crate(tmp_path, "c", README="Read."),
        }
    )
    assert texts == {
        "Text.": ["a 2.0.0 (MIT)", "b 1.0.0 (MIT)"],
        "Of a.": ["a 2.0.0 (MIT)"],
        "": ["c 1.0.0 (MIT)"],
    }
    whole = crate_licences.joined(texts)
    assert whole.count("Text.") == whole.count("Of a.") == 1
    assert "\nc 1.0.0 (MIT)\n" in whole
    assert whole.endswith("\n\nNo file in the package of this crate has its licence.\n")
    assert "Read." not in whole


def test_the_crates_of_others_have_their_licences_where_they_were_downloaded():
    known = crate_licences.packages()
    names = [name for name in known if name.startswith(("pyo3 ", "zstd-sys ", "ring "))]
    assert len(names) == 3
    texts = crate_licences.texts({name: known[name] for name in names})
    assert "" not in texts
    assert any("Meta Platforms" in text or "Facebook" in text for text in texts)
    assert not any(name.startswith("headgate-") for name in known)


def lines(path, count, covered):
    return {
        "filename": str(ROOT / path),
        "summary": {"lines": {"count": count, "covered": covered}},
    }


def test_the_holes_are_those_of_the_product():
    report = {
        "data": [
            {
                "files": [
                    lines("rust_core/net/src/link.rs", 10, 4),
                    lines("rust_core/net/src/io/thread.rs", 10, 9),
                    lines("rust_core/net/src/io/tests/slow.rs", 10, 0),
                    lines("rust_core/net/tests/all.rs", 10, 0),
                    lines("rust_core/fuzz/src/lib.rs", 10, 0),
                    {**lines("x", 10, 0), "filename": "/elsewhere/rust_core/net/src/lib.rs"},
                ]
            }
        ]
    }
    assert holes.text("Rust", holes.of_rust(report)) == (
        "Rust: 13 of 20 lines are reached, 65.0 %\n"
        "      6 of    10  rust_core/net/src/link.rs\n"
        "      1 of    10  rust_core/net/src/io/thread.rs"
    )


def test_ten_holes_of_python_are_shown_with_the_largest_first():
    files = {
        f"python/headgate/{number:02}.py": {
            "summary": {"num_statements": 20, "missing_lines": number}
        }
        for number in range(12)
    }
    head, *shown = holes.text("Python", holes.of_python({"files": files})).splitlines()
    assert head == "Python: 174 of 240 lines are reached, 72.5 %"
    assert len(shown) == 10
    assert shown[0] == "     11 of    20  python/headgate/11.py"


def test_each_action_is_pinned_by_its_commit():
    actions = [
        action
        for path in WORKFLOWS
        for action in re.findall(r"uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if not action.startswith("./")
    ]
    assert len(actions) > 20
    assert [action for action in actions if not PINNED.fullmatch(action)] == []
    assert len({action.partition("@")[0] for action in actions}) == len(set(actions))
    assert not PINNED.fullmatch("actions/checkout@v7")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_nothing_that_a_job_does_not_name(path):
    text = path.read_text(encoding="utf-8")
    assert "\npermissions: {}\n" in text
    assert "\nconcurrency:\n" in text
    jobs = text.partition("\njobs:\n")[2]
    count = len(re.findall(r"^  \w[\w-]*:$", jobs, re.MULTILINE))
    assert count == len(re.findall(r"^    permissions:$", jobs, re.MULTILINE))
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    named = re.findall(r"run:.*?\b(scripts/[\w.]+)", text)
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_native_module_is_never_tried_with_rights_to_publish():
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = re.split(r"^  (?=\w[\w-]*:$)", release.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]
    entitled = [job for job in jobs if "id-token: write" in job]
    assert len(entitled) >= 3
    assert [job for job in entitled if re.search(r"^ +(?:- )?run:", job, re.MULTILINE)] == []
