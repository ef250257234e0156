"""The Rust version that Cargo.toml declares is one that all locked dependencies accept.

Clippy's `incompatible_msrv`, which Cargo.toml denies, covers our own use of the standard library. No second
toolchain is installed, so nothing here compiles with the declared version itself.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version(text):
    major, minor, patch, *_ = [*map(int, text.split(".")), 0, 0]
    return major, minor, patch


def too_new(packages, declared):
    """Return the packages that need a newer Rust than `declared`, with the version they need."""
    return [
        f"{package['name']} {package['version']} needs Rust {package['rust_version']}"
        for package in packages
        if package["rust_version"] and version(package["rust_version"]) > version(declared)
    ]


def declared_version():
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return manifest["workspace"]["package"]["rust-version"]


def test_contributors_are_told_the_declared_rust():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"The oldest Rust that compiles Headgate is {declared_version()}," in page


def test_the_declared_rust_is_new_enough_for_every_locked_dependency():
    declared = declared_version()
    done = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    packages = [package for package in json.loads(done.stdout)["packages"] if package["source"]]
    checked = [package for package in packages if package["rust_version"]]
    assert len(checked) > 50
    assert too_new(packages, declared) == []


def test_versions_are_compared_by_number():
    packages = [
        {"name": "old", "version": "1.0.0", "rust_version": "1.9"},
        {"name": "same", "version": "1.0.0", "rust_version": "1.89.0"},
        {"name": "new", "version": "1.0.0", "rust_version": "1.100"},
        {"name": "silent", "version": "1.0.0", "rust_version": None},
    ]
    assert too_new(packages, "1.89") == ["new 1.0.0 needs Rust 1.100"]
