"""The error that an action raises if a function fails: the user's frames, no others."""

import re
import sys

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import PYSPARK

import headgate as hg
from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.skipif(PYSPARK < (4, 1), reason="Spark 4.0 prints its own frames too")

WAYS = {
    "shortest": ("reduce", "auto"),
    "kept map": ("map", "kept"),
    "kept reduce": ("reduce", "kept"),
}


def number_in(text):
    return int(text)


def scored(batches):
    for batch in batches:
        number_in(batch["s"][0].as_py())
        yield batch


def chained(batches):
    try:
        yield from scored(batches)
    except ValueError as error:
        raise KeyError("the batch is bad") from error


def in_context(batches):
    try:
        yield from scored(batches)
    except ValueError:
        yield {}["missing"]


def said(numbers, role, mode, function):
    with pytest.raises(PySparkException) as caught:
        exchange(
            numbers, "k", mode=mode, num_partitions=1, schema=numbers.schema, **{role: function}
        ).collect()
    return str(caught.value)


def functions_in(text):
    """Return the functions of the frames; all must be of this file."""
    frames = re.findall(r'File "(.*)", line \d+, in (\w+)', text)
    assert {path for path, _ in frames} == {__file__}
    return [function for _, function in frames]


@pytest.mark.parametrize(("role", "mode"), WAYS.values(), ids=WAYS.keys())
def test_a_plain_error(numbers, role, mode):
    text = said(numbers, role, mode, scored)
    assert functions_in(text) == ["scored", "number_in"]
    assert re.search(r"^ValueError: invalid literal .*: 'row \d+'$", text, re.MULTILINE)
    assert len(text.splitlines()) == 8


def test_a_chain_of_errors(numbers):
    text = said(numbers, "map", "kept", chained)
    assert functions_in(text) == ["chained", "chained", "scored", "number_in"]
    assert "KeyError: 'the batch is bad'" in text.split("caused by:")[0]
    assert "ValueError: invalid literal" in text.split("caused by:")[1]


def test_an_error_while_another_one_is_handled(numbers):
    text = said(numbers, "map", "kept", in_context)
    assert functions_in(text) == ["in_context", "in_context", "scored", "number_in"]
    assert "KeyError: 'missing'" in text.split("caused by:")[0]


def test_a_function_by_key(numbers):
    def fit(group):
        return number_in(group["s"][0].as_py())

    text = said(numbers, "reduce", "auto", hg.per_key("k", fit))
    assert functions_in(text) == ["fit", "number_in"]


def test_an_error_of_headgate_has_one_frame(numbers):
    text = said(numbers, "map", "kept", lambda it: (batch.drop_columns(["s"]) for batch in it))
    assert "[HG-4003]" in text
    assert len(re.findall(r"^  File ", text, re.MULTILINE)) == 1
    assert "caused by" not in text
