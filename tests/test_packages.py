"""Headgate's Python packages: their versions have bounds, and their licences are on a list.

No database of known holes is looked up: docs/testing.md says why.
"""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = TABLES["project"]["optional-dependencies"]

#: For users: a minimum and no maximum, since on a cluster the runtime decides which versions are installed.
FOR_USERS = [
    *TABLES["project"]["dependencies"],
    *(
        line
        for name in ("spark", "stream", "kafka", "delta", "iceberg", "lance", "ui", "otel", "demo")
        for line in EXTRAS[name]
    ),
]
#: For developers: a maximum too, so that a new major version comes with a commit of ours.
FOR_DEVELOPERS = [
    *TABLES["build-system"]["requires"],
    *(line for name in ("test", "bench", "docs") for line in EXTRAS[name]),
    *(line for group in TABLES["dependency-groups"].values() for line in group),
]

#: Licences that ask for no more than a notice.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}
#: Tools that are neither imported by Headgate nor shipped with it may ask for changes of their own files.
FOR_TOOLS = {*PERMISSIVE, "MPL-2.0"}
#: Asks for changes of its own files, a list of certificates that nobody changes; requests needs it, and so does PyIceberg.
UNCHANGED = {"certifi"}
#: Older metadata say it in words.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "CC0": "CC0-1.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def unbounded(lines, wanted):
    """Return the requirements without one of the bounds `wanted`: ">=", "<"; a pin is both."""
    wrong = []
    for line in lines:
        operators = {spec.operator for spec in Requirement(line).specifier}
        if "==" not in operators and not set(wanted) <= operators:
            wrong.append(line)
    return wrong


def closure(lines):
    """Return the installed packages that these requirements bring along, and the names of absent ones."""
    found, absent, todo = {}, set(), [(Requirement(line), "") for line in lines]
    seen = set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                absent.add(name)
                continue
            todo += [(Requirement(line), wanted) for line in found[name].requires or ()]
    return found, absent


def licence(metadata):
    """Return what a package says of its licence, as an SPDX expression where it can be told."""
    if metadata.get("License-Expression"):
        return metadata["License-Expression"]
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License ::") and not line.endswith("DFSG approved")
    ]
    words = classifiers or [(metadata.get("License") or "none").strip()]
    return " AND ".join(SPDX.get(word, word) for word in words)


def allowed(expression, licences):
    return any(
        all(word.strip("() ") in licences for word in way.split(" AND "))
        for way in expression.split(" OR ")
    )


def test_each_requirement_has_bounds():
    assert len(FOR_USERS) >= 5
    assert len(FOR_DEVELOPERS) >= 20
    assert unbounded(FOR_USERS, [">="]) == []
    assert unbounded(FOR_DEVELOPERS, [">=", "<"]) == []
    assert unbounded(["a", "b>=1", "c==1.2", "d>=1,<2"], [">=", "<"]) == ["a", "b>=1"]


def test_the_installed_versions_are_within_the_bounds():
    wanted = [*FOR_USERS, *EXTRAS["test"], *TABLES["build-system"]["requires"]]
    outside = []
    for requirement in map(Requirement, wanted):
        version = distribution(requirement.name).version
        if not requirement.specifier.contains(version, prereleases=True):
            outside.append(f"{requirement}: {version} is installed")
    assert outside == []


@pytest.mark.parametrize(
    ("lines", "licences", "least"),
    [
        (FOR_USERS, PERMISSIVE, 6),
        ([*EXTRAS["test"], *TABLES["dependency-groups"]["lint"]], FOR_TOOLS, 30),
    ],
    ids=["for users", "for developers"],
)
def test_the_licences_of_the_installed_packages_are_on_the_list(lines, licences, least):
    found, absent = closure(lines)
    # An extra of the tests may be absent where `make check` alone was run; a package of the users may not.
    assert not absent - {"mypy", "ruff"}
    assert len(found) >= least
    said = {
        name: licence(package.metadata) for name, package in found.items() if name not in UNCHANGED
    }
    assert {name: words for name, words in said.items() if not allowed(words, licences)} == {}


def test_a_licence_that_is_not_on_the_list_is_found():
    assert allowed("GPL-3.0-only OR MIT", PERMISSIVE)
    assert not allowed("GPL-3.0-only AND MIT", PERMISSIVE)
    assert not allowed("none", PERMISSIVE)
    assert not allowed(licence(distribution("hypothesis").metadata), PERMISSIVE)
