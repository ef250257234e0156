"""Runs a script in a Spark driver of its own, for tests that need another configuration."""

import json
import subprocess
import sys
import textwrap

from tests.kit.sessions import SHORT_LIVED

HEAD = """
import json, logging, os, signal, sys, threading, time, warnings
from pathlib import Path
from pyspark import InheritableThread
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats

class Lines(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

said = []
logging.getLogger("headgate.spark").setLevel(logging.INFO)
logging.getLogger("headgate.spark").addHandler(Lines())
logging.getLogger("headgate.spark").propagate = False
warnings.simplefilter("ignore")
builder = SparkSession.builder.master(MASTER).config("spark.headgate.mode", "kept")
for name, value in CONF.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
context = spark.sparkContext
context.setLogLevel("OFF")
scala = context._jsc.sc()
ROWS = 20_000
numbers = spark.range(0, ROWS, 1, 7).selectExpr("id", "id % 100 as k")

def executors():
    return scala.getExecutorIds().size()

def eventually(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not true within {seconds} s; log: {said}")
        time.sleep(0.1)

def outcome(action):
    '''Run an action. Return if its ids are right, the text of its error, and its seconds.'''
    started = time.monotonic()
    try:
        ids = sorted(row["id"] for row in action())
        found = {"right": ids == list(range(ROWS)), "error": ""}
    except Exception as error:
        found = {"right": False, "error": str(error)}
    return {**found, "seconds": time.monotonic() - started}

def tell(**found):
    print("TOLD " + json.dumps(found), flush=True)
"""

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.executor.memory": "512m",
    "spark.headgate.memory": "16m",
    "spark.headgate.progress": "off",
}


def drive(body, master, tmp_path, seconds=600, **conf):
    """Run a script; return the values that it passed to ``tell``. Its log is left in ``driver.err``.

    Args:
        body: code that follows ``HEAD`` and ends with a call of ``tell``.
        master: master of the session.
        tmp_path: an empty folder.
        seconds: time limit of the script.
        conf: configuration of the session; ``__`` stands for a dot.
    """
    given = {name.replace("__", "."): value for name, value in conf.items()}
    given = {**QUIET, "spark.local.dir": str(tmp_path / "local"), **given}
    script = tmp_path / "driver.py"
    head = f"MASTER = {master!r}\nCONF = {given!r}\n{HEAD}"
    script.write_text(head + textwrap.dedent(body) + "\nspark.stop()\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=seconds,
        check=False,
    )
    (tmp_path / "driver.err").write_text(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    print(told)  # visible with pytest -s
    return json.loads(told.removeprefix("TOLD "))
