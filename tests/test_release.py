"""All files have the version of Cargo.toml, and the changelog has its section; scripts/release.py sees what differs."""

import re
import runpy
import shutil
import tomllib
from datetime import date
from importlib.metadata import version as installed

import pytest
from scripts import release

import headgate
from headgate import _native

PYPROJECT = tomllib.loads((release.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DAY = date(2027, 1, 31)


@pytest.fixture
def tree(tmp_path):
    """Return a folder with the files that have the version."""
    for name in (*release.COPIES, "CHANGELOG.md", "changes/README.md"):
        if (release.ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(release.ROOT / name, tmp_path / name)
    return tmp_path


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def add_change(tree):
    (tree / "changes" / "a.added.md").write_text("A change.\n", encoding="utf-8")


def build(tree, number):
    """Stand for towncrier, which is not installed where `make test` runs."""
    edit(tree / "CHANGELOG.md", release.MARKER, f"{release.MARKER}\n### Added\n\n- For {number}.\n")
    (tree / "changes" / "a.added.md").unlink()


def top(tree):
    return release.sections((tree / "CHANGELOG.md").read_text(encoding="utf-8"))[0]


def test_every_file_has_the_version_of_the_workspace():
    assert release.defects(release.ROOT) == []


def test_no_other_page_has_the_version_in_the_name_of_a_wheel():
    pages = [*release.ROOT.glob("*.md"), *(release.ROOT / "docs").rglob("*.md")]
    assert len(pages) > 50
    naming = {
        path.relative_to(release.ROOT).as_posix()
        for path in pages
        if re.search(release.WHEEL, path.read_text(encoding="utf-8"))
    }
    assert naming == {name for name, pattern in release.COPIES.items() if pattern == release.WHEEL}


def test_the_package_the_native_module_and_the_site_have_it_too():
    versions = {
        headgate.__version__,
        _native.__version__,
        installed("headgate"),
        runpy.run_path(str(release.ROOT / "docs" / "conf.py"))["release"],
    }
    assert versions == {release.version()}
    assert "version" in PYPROJECT["project"]["dynamic"]
    assert "version" not in PYPROJECT["project"]


def test_all_crates_inherit_it():
    manifests = list((release.ROOT / "rust_core").glob("*/Cargo.toml"))
    assert len(manifests) >= 10
    for path in manifests:
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        assert manifest["package"]["version"] == {"workspace": True}, path


def test_each_file_of_changes_has_a_kind_and_short_lines():
    kinds = {kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"]}
    readme = (release.ROOT / "changes" / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in kinds if f"- `{kind}`:" not in readme] == []
    for name in release.fragments(release.ROOT):
        _, kind, _ = name.split(".")
        assert kind in kinds, name
        text = (release.ROOT / "changes" / name).read_text(encoding="utf-8")
        assert 1 <= len(text.splitlines()) <= 6, name
        assert not text.startswith("- "), name


@pytest.mark.parametrize(
    ("name", "old", "new", "defect"),
    [
        ("Cargo.lock", '-net"\nversion = "', '-net"\nversion = "9', "Cargo.lock has 9"),
        ("docs/deploy/glue.md", "/headgate-", "/headgate-9", "docs/deploy/glue.md has 9"),
        ("CHANGELOG.md", "## [", "## [9", "CHANGELOG.md begins with 9"),
        ("CHANGELOG.md", "\n- ", "\n", "CHANGELOG.md says nothing about"),
    ],
)
def test_a_file_with_another_version_is_named(tree, name, old, new, defect):
    count = 10_000 if old == "\n- " else 1
    text = (tree / name).read_text(encoding="utf-8")
    (tree / name).write_text(text.replace(old, new, count), encoding="utf-8")
    (wrong,) = release.defects(tree)
    assert wrong.startswith(defect)


def test_a_tag_needs_its_version_a_date_and_no_change_that_is_left(tree):
    edit(tree / "CHANGELOG.md", top(tree)[1], release.UNRELEASED)
    add_change(tree)
    number = release.version(tree)
    assert release.defects(tree, "v9.9.9") == [
        f"the tag is v9.9.9, not v{number}",
        f"the date of {number} in CHANGELOG.md is unreleased",
        "changes/a.added.md is not in CHANGELOG.md",
    ]
    release.bump(tree, number, DAY, build)
    assert release.defects(tree, f"v{number}") == []


def test_the_next_version_gets_a_section_above_and_is_in_all_files(tree):
    edit(tree / "CHANGELOG.md", top(tree)[1], "2027-01-01")
    add_change(tree)
    release.bump(tree, "97.0.1", DAY, build)
    assert release.defects(tree, "v97.0.1") == []
    assert top(tree) == (
        "97.0.1",
        "2027-01-31",
        f"\n\n{release.MARKER}\n### Added\n\n- For 97.0.1.\n\n",
    )
    assert (tree / "CHANGELOG.md").read_text(encoding="utf-8").count(release.MARKER) == 1
    assert release.version(tree) == "97.0.1"


def test_the_notes_of_a_release_are_its_section_alone():
    text = f"# C\n\n## [2.0.0] - 2027-01-01\n\n{release.MARKER}\n- New.\n\n## [1.0.0] - 2026-01-01\n\n- Old.\n"
    assert release.notes(text) == "- New."


@pytest.mark.parametrize(
    ("number", "day", "changes", "reason"),
    [
        ("1.0", "2027-01-01", True, "1.0 is no version"),
        ("0.0.1", "2027-01-01", True, "0.0.1 is not newer than"),
        ("97.0.0", "2027-01-01", False, "nothing to say about 97.0.0"),
        ("97.0.0", release.UNRELEASED, True, "is not released yet"),
    ],
)
def test_a_bump_without_a_reason_changes_nothing(tree, number, day, changes, reason):
    edit(tree / "CHANGELOG.md", f" - {top(tree)[1]}", f" - {day}")
    if changes:
        add_change(tree)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=reason):
        release.bump(tree, number, DAY, build)
    assert before == {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
