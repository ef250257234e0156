"""The files for a forge and for registries: forms of issues, owners, citation, recipe; and the contributor's map."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = CARGO["workspace"]["package"]["version"]
#: Keys that a form of GitHub may have, and those that it must have.
MAY, MUST = {"name", "description", "title", "labels", "assignees", "body"}, {"name", "description", "body"}  # fmt: skip
TYPES = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def loaded(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def defects_of(form):
    """Return what GitHub would refuse in a form of an issue."""
    defects = [f"no {key}" for key in MUST - form.keys()]
    defects += [f"unknown key {key}" for key in form.keys() - MAY]
    fields = form.get("body") or []
    ids = [field["id"] for field in fields if "id" in field]
    defects += [f"the id {name} twice" for name in ids if ids.count(name) > 1]
    if not any(field.get("type") != "markdown" for field in fields):
        defects.append("no field that a user fills in")
    for field in fields:
        attributes = field.get("attributes", {})
        if field.get("type") not in TYPES:
            defects.append(f"unknown type {field.get('type')}")
        if field.get("type") == "markdown" and not attributes.get("value"):
            defects.append("markdown without a value")
        if field.get("type") != "markdown" and not attributes.get("label"):
            defects.append("a field without a label")
        if field.get("type") in {"dropdown", "checkboxes"} and not attributes.get("options"):
            defects.append("a choice without options")
    return defects


@pytest.mark.parametrize("form", ["bug.yml", "question.yml"])
def test_a_form_of_an_issue_has_what_github_asks_for(form):
    assert defects_of(loaded(FORMS / form)) == []
    assert "python -m headgate doctor --json" in (FORMS / form).read_text(encoding="utf-8")


def test_defects_of_a_form_are_reported():
    field = {"type": "textarea", "id": "a", "attributes": {"label": "A"}}
    assert defects_of({"name": "n", "description": "d", "body": [field]}) == []
    assert defects_of({"name": "n", "body": [field, field]}) == [
        "no description",
        *["the id a twice"] * 2,
    ]
    assert len(defects_of({"name": "n", "description": "d", "body": [{"type": "text"}]})) == 2
    assert "a choice without options" in defects_of(
        {"name": "n", "description": "d", "body": [{"type": "dropdown", "attributes": {"label": "A"}}]}
    )  # fmt: skip


def test_an_issue_is_opened_by_a_form():
    assert loaded(FORMS / "config.yml") == {"blank_issues_enabled": False}


def test_the_command_of_the_forms_has_the_option(capsys):
    from headgate.spark.doctor.command import main

    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--json" in capsys.readouterr().out


def owners(text):
    """Return the pattern and the owners of each line."""
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return [(pattern, teams) for pattern, *teams in filter(None, lines)]


def test_the_paths_of_owners_exist():
    rules = owners((ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8"))
    assert rules[0][0] == "*"
    assert len(rules) > 8
    assert [path for path, _ in rules[1:] if not (ROOT / path.strip("/")).exists()] == []
    assert [path for path, names in rules if not names or not all(n[0] == "@" for n in names)] == []


def test_the_citation_has_the_version():
    citation = loaded("CITATION.cff")
    assert citation["version"] == VERSION
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_recipe_has_the_version_and_the_requirements_of_the_package():
    recipe = loaded("recipe/recipe.yaml")
    assert recipe["context"]["version"] == VERSION
    assert recipe["context"]["python_min"] == PROJECT["requires-python"].removeprefix(">=")
    needs = recipe["requirements"]["run"]
    assert needs == ["python", *(need.replace(">=", " >=") for need in PROJECT["dependencies"])]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
    bundled = {"THIRDPARTY.yml"}  # by cargo-bundle-licenses
    missing = [name for name in recipe["about"]["license_file"] if not (ROOT / name).exists()]
    assert set(missing) == bundled


def test_the_notice_names_the_licences_that_crates_may_have():
    notice = " ".join((ROOT / "NOTICE").read_text(encoding="utf-8").split())
    allowed = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"]
    assert len(allowed) > 4
    assert [name for name in allowed if name not in notice] == []
    assert "NOTICE" in PROJECT["license-files"]


def test_support_has_an_end_for_each_version_that_the_package_declares():
    text = (ROOT / "SUPPORT.md").read_text(encoding="utf-8")
    ends = dict(re.findall(r"^\| ([34]\.\d+) \|.* (\d{4}-\d\d-\d\d) \|$", text, re.MULTILINE))
    prefix = "Programming Language :: Python :: 3."
    declared = {
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(prefix)
    }
    assert {version for version in ends if version[0] == "3"} == declared
    (spark,) = PROJECT["optional-dependencies"]["spark"]
    oldest = min((version for version in ends if version[0] == "4"), key=lambda v: int(v[2:]))
    assert spark == f"pyspark[sql]>={oldest}"
    assert metadata.version("pyspark").rpartition(".")[0] in ends


def test_the_forge_tests_each_version_that_is_supported():
    jobs = loaded(".github/workflows/ci.yml")["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]["include"]
    text = (ROOT / "SUPPORT.md").read_text(encoding="utf-8")
    supported = re.findall(r"^\| ([34]\.\d+) \|.* \d{4}-\d\d-\d\d \|$", text, re.MULTILINE)
    assert len(supported) >= 8
    assert sorted([row[kind] for kind in ("python", "spark") for row in matrix]) == sorted(
        supported
    )


def rows_of_the_map(text):
    """Return what is added, and the paths that the map names for it, in order."""
    section = text.partition("\n## Where a change goes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!---|I want)(.+?) \| (.+) \|$", section, re.MULTILINE)
    return {goal: re.findall(r"`([\w.-]*[/.][\w./-]+)`", files) for goal, files in rows}


def test_the_contributors_map_names_files_that_exist():
    rows = rows_of_the_map((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(rows) >= 10
    named = [path for paths in rows.values() for path in paths]
    assert len(named) > 50
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [
        goal for goal, paths in rows.items() if not any("tests/" in path for path in paths)
    ] == []


def test_a_path_of_the_map_is_seen():
    text = "\n## Where a change goes\n\n| I want | x |\n|---|---|\n| a thing | `a/b.py`, `map` in `c.toml` |\n\n## Next\n"
    assert rows_of_the_map(text) == {"a thing": ["a/b.py", "c.toml"]}
