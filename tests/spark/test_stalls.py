"""A run whose producers Spark never starts fails with an error that names the awaited stage."""

import re

import pytest
from pyspark.errors import PySparkException

from headgate import explain
from headgate.spark import exchange
from headgate.spark.driver import stalls


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(stalls, "STALLED", 3.0)


def test_the_example_of_the_error_page_fails_with_a_barrier_stage_that_does_not_fit(spark, numbers):
    (lines,) = re.findall(r"^```py\n(.*?)^```$", explain.page("HG-2103"), re.MULTILINE | re.DOTALL)
    with pytest.raises(PySparkException) as caught:
        exec(lines, {"__name__": "lines"})
    text = str(caught.value)
    assert "[HG-2103]" in text
    assert "of its producer job, a barrier stage: all 4 at once; 3 slots are free" in text
    assert exchange(numbers, by="k", num_partitions=1).count() == 20_000
