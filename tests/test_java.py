"""The search for Java before Spark is started."""

from __future__ import annotations

import pytest

from headgate._java import require_java
from headgate.errors import JavaNotFound


def install(folder, said):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25.0.1" 2025-10-21 LTS', 25),
    ],
)
def test_a_new_java_is_found(said, version, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", said)))
    assert require_java() == version


def test_java_home_wins_over_the_path(tmp_path, monkeypatch):
    old = install(tmp_path / "old", 'java version "1.8.0_392"')
    new = install(tmp_path / "new", 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    with pytest.raises(JavaNotFound, match="Java 8 is too old") as caught:
        require_java()
    assert str(old) in caught.value.have
    monkeypatch.delenv("JAVA_HOME")
    assert require_java() == 17


@pytest.mark.parametrize("said", ["", "a shell script of somebody else"])
def test_something_else_is_no_java(said, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", said)))
    with pytest.raises(JavaNotFound, match="Java not found"):
        require_java()


def test_no_java_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFound, match="JAVA_HOME is not set"):
        require_java()
