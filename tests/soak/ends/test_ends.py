"""Drivers that have one slot, stop Spark or get Ctrl-C, each in a new process."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.kit.masters import PYSPARK
from tests.kit.sessions import SHORT_LIVED

HEAD = """
import os, sys, threading, time, warnings
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats
spark = (SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.headgate.mode", "kept")
    .config("spark.driver.extraJavaOptions", JAVA).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
df = spark.range(0, 1000, 1, 4)
def ours():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("headgate"))
def slow(batches):
    for batch in batches:
        time.sleep(60)
        yield batch
def wait_for_producers():
    tracker = spark.sparkContext.statusTracker()
    while not list(tracker.getActiveJobsIds()):
        time.sleep(0.05)
    time.sleep(1.5)
"""


def start(master, body, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(
        f"MASTER, JAVA = {master!r}, {SHORT_LIVED!r}\n" + HEAD + textwrap.dedent(body)
    )
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def finish(process, seconds=120):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err[-3000:]
    return out, err


@pytest.mark.parametrize("call", ["", ", map=lambda batches: batches, schema=df.schema"])
def test_one_slot_is_enough(tmp_path, call):
    body = f"""
    spark.conf.set("spark.headgate.mode", "auto")
    spark.conf.set("spark.headgate.progress", "off")
    print(exchange(df, by="id"{call}).count(), ours())
    spark.stop()
    """
    out, _ = finish(start("local[1]", body, tmp_path))
    assert out.strip() == "1000 []"


def test_stopping_spark_ends_everything(tmp_path):
    body = """
    errors = []
    def act():
        try:
            exchange(df, by="id", map=slow, schema=df.schema).collect()
        except Exception as error:
            errors.append(error)
    thread = threading.Thread(target=act)
    thread.start()
    wait_for_producers()
    started = time.monotonic()
    spark.stop()
    thread.join(10)
    while ours() and time.monotonic() - started < 10:
        time.sleep(0.05)
    print(len(errors), thread.is_alive(), ours())
    again = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
    print(exchange(again.range(0, 1000, 1, 4), by="id").count())
    again.stop()
    """
    out, _ = finish(start("local[4]", body, tmp_path))
    lines = out.strip().splitlines()
    assert lines[0] == "1 False []"
    assert lines[1] == "1000"


@pytest.mark.skipif(PYSPARK < (4, 1), reason="PySpark 4.0 gives a Py4JError for Ctrl-C")
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_ctrl_c_ends_a_kept_exchange_in_either_stage(tmp_path, role):
    body = f"""
    begun = os.path.join(os.getcwd(), "begun")
    def sleeping(batches):
        for batch in batches:
            open(begun, "w").close()
            time.sleep(60)
            yield batch
    def tell():
        while not os.path.exists(begun):
            time.sleep(0.05)
        print("running", flush=True)
    threading.Thread(target=tell, daemon=True).start()
    try:
        exchange(df, by="id", {role}=sleeping, schema=df.schema).collect()
    except KeyboardInterrupt:
        started = time.monotonic()
        tracker = spark.sparkContext.statusTracker()
        while list(tracker.getActiveJobsIds()) and time.monotonic() - started < 10:
            time.sleep(0.05)
        quick = time.monotonic() - started < 5
        same = lambda batches: batches
        print("interrupted", quick, exchange(df, by="id", map=same, schema=df.schema).count())
    spark.stop()
    """
    process = start("local[4]", body, tmp_path)
    assert process.stdout.readline() == "running\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = finish(process)
    assert out.strip() == "interrupted True 1000"


def test_import_does_not_load_pyspark(tmp_path):
    code = "import sys, headgate.spark; print([m for m in sys.modules if 'spark' in m and 'headgate' not in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"
