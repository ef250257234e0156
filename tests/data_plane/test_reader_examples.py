"""The examples in the docstrings of readers and gates show what happens."""

import doctest

import pytest

from headgate import data_types, gate, mutable_reader, reader


@pytest.mark.parametrize("module", [data_types, gate, mutable_reader, reader])
def test_the_examples_are_true(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
