"""The package as in the wheel py3-none-any, which has no native module: what works, and how the rest is refused.

`make wheel` and `scripts/fallback.sh --check` try the wheel itself; here its files are laid out without a build.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scripts import fallback_wheel
from tests.kit.plans import CLUSTER, LOCAL, a_source, an_exchange, an_input

from headgate import _native
from headgate.spark.plan.facts import Placement
from headgate.spark.plan.rules import NO_NATIVE

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.1.0+test"
PACKAGES = [
    *("headgate", "headgate.flink", "headgate.functions", "headgate.observe", "headgate.sink"),
    *("headgate.source", "headgate.spark", "headgate.stream", "headgate.testing"),
]
#: Modules that Windows does not have.
UNIX = {"fcntl", "grp", "pwd", "resource", "termios"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a folder with the packages of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("headgate", "pyspark_headgate"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "python" / name, folder / name, ignore=ignored)
    fallback_wheel.leave_out_native(folder / "headgate", VERSION)
    return folder


def output_of(tree, program, **variables):
    """Run a program with the packages of a folder; return its output."""
    environ = os.environ | {"PYTHONPATH": str(tree), "PYSPARK_PYTHON": sys.executable, **variables}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tree,
        env=environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_files_are_those_of_the_wheel(tree):
    printed = output_of(tree, "import headgate; print(headgate.__file__, headgate.__version__)")
    assert printed.split() == [str(tree / "headgate" / "__init__.py"), VERSION]
    assert not list(tree.rglob("*.so"))
    # Type checkers see the native module.
    assert (tree / "headgate" / "_native.pyi").is_file()


EVERY_MODULE = """
import importlib, json, pkgutil, headgate
names = [found.name for found in pkgutil.walk_packages(headgate.__path__, "headgate.")]
names = [name for name in names if not name.startswith("headgate.docs") and "__main__" not in name]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
"""


def test_every_module_can_be_imported(tree):
    assert len(json.loads(output_of(tree, EVERY_MODULE))) > 300


AS_ON_WINDOWS = f"""
import os, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {UNIX}:
            raise ModuleNotFoundError(name, name=name)

import numpy, pyarrow.dataset, pyarrow.fs
sys.meta_path.insert(0, Missing())
for name in {UNIX}:
    sys.modules.pop(name, None)
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getuid", "geteuid", "pidfd_open", "statvfs"):
    delattr(os, name)
import importlib
for package in {PACKAGES}:
    module = importlib.import_module(package)
    [getattr(module, name) for name in getattr(module, "__all__", [])]
import headgate.spark.plan.decide, headgate.spark.plan.shuffle, headgate.spark.tasks.function_task
print(sorted({UNIX} & set(sys.modules)))
"""


def test_the_packages_need_no_module_of_unix_alone(tree):
    assert output_of(tree, AS_ON_WINDOWS).strip() == "[]"


#: Each call needs the native module.
REFUSED = {
    "environment": "hg.ShuffleEnvironment()",
    "state": "hg.decode_channel_state(b'', None)",
    "key groups": "key_groups(pa.array([1]), 128)",
    "kept": "read_kept_index('a', 0)",
    "stream": "st.stream(FileSource('/nowhere', format='csv', schema=ROWS)).sink(FileSink('/out')).start()",
    "state memory": "st.StateMemory()",
    "iterate": "iterate(object(), by='k', send=print, update=print, message_schema='k long', rounds=1)",
}

REFUSALS = """
import json
import pyarrow as pa
import headgate as hg
import headgate.stream as st
from headgate._native import read_kept_index
from headgate.key_groups import key_groups
from headgate.sink import FileSink
from headgate.source import FileSource
from headgate.spark import iterate

ROWS = pa.schema([("k", pa.int64())])
said = {}
for name, call in CALLS.items():
    try:
        eval(call)
    except hg.HeadgateError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def refusals(tree):
    return json.loads(output_of(tree, f"CALLS = {REFUSED!r}\n{REFUSALS}"))


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_needs_the_module_says_so(refusals, name):
    first, facts, remedy, more = refusals[name].splitlines()
    assert first.startswith("[HG-1104] ")
    assert first.endswith("needs the native module of Headgate, and the installed wheel has none")
    assert f"have  headgate {VERSION} py3-none-any, " in facts
    assert '"manylinux"' in remedy
    assert more.endswith("python -m headgate explain HG-1104")


ON_SPARK = """
import json, warnings
import pyarrow as pa, pyarrow.parquet as pq
import headgate as hg
from headgate.source import FileSource
from headgate.spark import Input, exchange, explain
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table = pa.table({"k": pa.array([n % 7 for n in range(200)], pa.int64()), "n": pa.array(range(200), pa.int64())})
pq.write_table(table, "rows.parquet")
df = spark.read.parquet("rows.parquet")
source = FileSource("rows.parquet", format="parquet")

def half(batches):
    for batch in batches:
        yield batch.filter(pa.compute.equal(pa.compute.bit_wise_and(batch["n"], 1), 0))

def broken(batches):
    raise ValueError("the user's own")

def rows(frame):
    found = frame.withColumn("at", F.spark_partition_id()).collect()
    return sorted(tuple(row) for row in found)

even = df.where("n % 2 = 0")
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    pairs = {
        "plain": (exchange(df, by="k", num_partitions=3), df.repartition(3, "k")),
        "map": (exchange(df, by="k", map=half, schema=df.schema, num_partitions=3), even.repartition(3, "k")),
        "source": (exchange(source, by="k", num_partitions=3, spark=spark), df.repartition(3, "k")),
        "function": (
            exchange(df, by=lambda batch: [k % 3 for k in batch["k"].to_pylist()], num_partitions=3),
            df.repartitionByRange(3, F.col("k") % 3),
        ),
    }
said = {name: rows(ours) == rows(theirs) for name, (ours, theirs) in pairs.items()}
warned = [each.message for each in told if isinstance(each.message, hg.HeadgateWarning)]
said["warned"] = sorted({(warning.code, str(warning)) for warning in warned})
said["explained"] = str(explain(pairs["map"][0]))
try:
    exchange(df, by="k", reduce=broken, schema=df.schema).collect()
except Exception as error:
    said["broken"] = str(error)
for name, call in {
    "list": lambda: exchange([df, Input(df)], by="k", reduce=lambda a, b: a, schema=df.schema),
    "mode": lambda: exchange(df, by="k", mode="kept"),
    "key groups": lambda: exchange(df, by=hg.KeyGroupSelector("k"), num_partitions=3),
}.items():
    try:
        call()
    except hg.HeadgateError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def on_spark(tree):
    return json.loads(output_of(tree, ON_SPARK).splitlines()[-1])


@pytest.mark.parametrize("name", ["plain", "map", "source", "function"])
def test_an_exchange_gives_the_rows_of_repartition(on_spark, name):
    assert on_spark[name] is True


def test_the_first_exchange_that_needs_the_module_warns(on_spark):
    codes, texts = zip(*on_spark["warned"], strict=True)
    assert set(codes) == {"HG-1104"}
    assert any(text.startswith("exchange by [k] -> 3 partitions: Spark's own") for text in texts)
    assert all(NO_NATIVE in text for text in texts)
    assert NO_NATIVE in " ".join(on_spark["explained"].split())


def test_a_function_that_raises_shows_its_own_line(on_spark):
    assert "the user's own" in on_spark["broken"]
    assert "in broken" in on_spark["broken"]


@pytest.mark.parametrize("name", ["list", "mode", "key groups"])
def test_an_exchange_that_only_the_module_can_do_is_refused(on_spark, name):
    assert on_spark[name].startswith("[HG-1104] this exchange needs the native module")


WITHOUT = replace(LOCAL, has_native=False)


def test_the_rules_choose_spark_without_the_module():
    for inputs in ([an_input(has_map=True)], [a_source()]):
        assert an_exchange(*inputs, there=LOCAL).mode == "kept"
        plan = an_exchange(*inputs, there=WITHOUT)
        assert (plan.mode, plan.why, plan.impossible) == ("repartition", NO_NATIVE, "")
    by_order = an_input(placement=Placement("function", name="f"))
    apart = replace(CLUSTER, has_native=False, compares_rows=False)
    assert "by may place rows by their order" in an_exchange(by_order, there=apart).impossible


TESTED = """
import json
import pyarrow as pa
import pyarrow.compute as pc
import headgate as hg
from headgate.testing import check, run

rows = pa.table({"k": [1.0, -0.0, 0.0, float("nan"), float("nan"), None] * 5, "n": range(30)})
def totals(batches):
    table = batches.read_all()
    zero = pc.add(table["k"], 0.0)
    return table.set_column(0, "k", zero).group_by("k").aggregate([("n", "sum")])
kept = {}
for name, by in {
    "columns": ["k"], "turn": None, "rows in turn": hg.RebalanceSelector(by_rows=True), "all": hg.BroadcastSelector(),
    "one": hg.GlobalSelector(), "random": hg.ShuffleSelector(3, by_rows=True), "function": lambda batch: [1] * len(batch),
}.items():
    made = run(rows, by=by)
    kept[name] = (made.num_rows, sorted(made["n"].to_pylist()) == sorted([*range(30)] * (made.num_rows // 30)))
sums = run(rows, by="k", reduce=totals)
kept["sums"] = len(sums)
check(rows, by="k", reduce=lambda batches: batches.read_all().sort_by("n"))
for name, by in {"unknown": "q", "too large": lambda batch: [7] * len(batch), "no number": lambda batch: ["a"]}.items():
    try:
        run(rows, by=by)
    except hg.HeadgateError as error:
        kept[name] = error.code
print(json.dumps(kept))
"""


def test_functions_can_be_tried(tree):
    tried = json.loads(output_of(tree, TESTED))
    assert tried.pop("all") == [60, True]
    assert (tried.pop("unknown"), tried.pop("too large"), tried.pop("no number")) == (
        "HG-4001",
        "HG-4004",
        "HG-4004",
    )
    # 1, zero, not a number, and null; each in one partition.
    assert tried.pop("sums") == 4
    assert len(tried) == 6
    assert set(map(tuple, tried.values())) == {(30, True)}


def test_a_native_module_beside_the_stand_in_wins(tree, tmp_path):
    shutil.copytree(tree / "headgate", tmp_path / "headgate")
    shutil.copy(_native.__file__, tmp_path / "headgate")
    printed = output_of(tmp_path, "from headgate import _native; print(_native.__file__)")
    assert printed.strip().endswith(".so")
