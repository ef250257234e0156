"""Each public class has an example in its docstring, and the example runs as shown."""

import doctest
import importlib

import pytest

import headgate as hg
from headgate import flink, key_groups

CLASSES = [
    value
    for module in (hg, flink)
    for value in (getattr(module, name) for name in module.__all__)
    if isinstance(value, type) and not issubclass(value, (Exception, Warning))
]
FUNCTIONS = {"headgate.flink.emitting", key_groups.__name__}
TESTING = {f"headgate.testing.{name}" for name in ("check", "run", "service")}
STREAM = {
    f"headgate.stream.{name}"
    for name in ("state.descriptors", "windows.aggregates", "windows.kinds")
}
MODULES = sorted({one.__module__ for one in CLASSES} | FUNCTIONS | TESTING | STREAM)


@pytest.mark.parametrize("public", CLASSES, ids=lambda one: one.__name__)
def test_a_public_class_has_an_example(public):
    written = [public.__doc__, *(getattr(value, "__doc__", "") for value in vars(public).values())]
    assert any(">>>" in (text or "") for text in written)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
