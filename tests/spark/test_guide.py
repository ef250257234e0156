"""The code blocks of docs/write-a-source.md run on Spark."""

import re
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from tests.spark.masters import registers

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "write-a-source.md"
BLOCKS = re.findall(r"^```python( spark)?\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@registers
def test_the_code_blocks_of_the_guide_run_on_spark(spark):
    assert sum(bool(on_spark) for on_spark, _ in BLOCKS) == 2
    module = types.ModuleType("guide")
    sys.modules["guide"] = module
    cloudpickle.register_pickle_by_value(module)
    module.spark = spark
    try:
        for place, (_, text) in enumerate(BLOCKS):
            exec(compile(text, f"{GUIDE.name} block {place}", "exec"), module.__dict__)
            if place == len(BLOCKS) - 1:
                assert module.df.count() == 840
    finally:
        del module.spark, sys.modules["guide"]
        cloudpickle.unregister_pickle_by_value(module)
