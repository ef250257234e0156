"""A worker whose Python has no headgate fails with an error that says how to install it."""

import subprocess
import sys

from headgate.spark.portable import portable

LOAD = """
import pickle, sys
sys.modules["headgate"] = None  # as if it were not installed
run = pickle.load(sys.stdin.buffer)
try:
    run(iter([]))
except ImportError as error:
    print(error)
"""


def test_a_python_without_headgate_is_named():
    from pyspark import cloudpickle

    task = portable({"any": "task"}, "headgate.spark.tasks.consumer", "headgate: reduce")
    done = subprocess.run(
        [sys.executable, "-c", LOAD], input=cloudpickle.dumps(task), capture_output=True, check=True
    )
    said = done.stdout.decode()
    assert said.startswith("[HG-1102] the Python that runs the tasks has no headgate"), done.stderr
    assert sys.executable in said
    assert "PYSPARK_PYTHON" in said
