"""The jobs of docs/cookbook.md: right, and shorter with Headgate than without."""

import re
from pathlib import Path

import pytest
from benches import cookbook
from tests.kit.own_driver import drive

pytest.importorskip("polars")

ROOT = Path(__file__).resolve().parents[3]
JOBS = cookbook.jobs()

BODY = f"""
sys.path.insert(0, {str(ROOT)!r})
from pyspark import cloudpickle
from tests.soak.programs import cookbook_answers
cloudpickle.register_pickle_by_value(cookbook_answers)
tell(**cookbook_answers.compared(spark))
"""
#: More partitions than some inputs have keys, so that some are empty.
CONFS = {
    "spark__headgate__mode": "auto",
    "spark__headgate__numPartitions": "7",
    "spark__sql__shuffle__partitions": "7",
    "spark__sql__adaptive__enabled": "false",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The rows of each job, by its name and by the way. Polars keeps descriptors, so it has its own session."""
    return drive(BODY, "local[4]", tmp_path_factory.mktemp("cookbook"), **CONFS)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_all_ways_give_what_spark_says(job, found):
    rows = found[job.name]
    assert len(rows["spark"]) >= 10
    assert rows["headgate"] == rows["spark"]
    assert rows["pyspark"] == rows["spark"]
    assert all(others == rows["spark"] for others in rows.values())


def test_joins_are_compared_with_cogroup(found):
    cogrouped = {name for name, rows in found.items() if "cogroup" in rows}
    assert cogrouped == {"as_of", "invoices", "intervals"}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_headgates_way_is_shorter(job):
    assert job.headgate.lines < job.pyspark.lines
    assert max(map(len, (job.headgate.code + job.pyspark.code).splitlines())) <= 100


def test_the_page_counts_its_lines():
    page = cookbook.PAGE.read_text(encoding="utf-8")
    said = re.findall(r"^\| \[([\w ]+)\]\(#([\w-]+)\) \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    counted = [
        (job.title, job.name.replace("_", "-"), str(job.headgate.lines), str(job.pyspark.lines))
        for job in JOBS
    ]
    assert len(counted) == 10
    assert said == counted


def test_each_block_runs_one_way(found):
    assert all("exchange(" in job.headgate.code for job in JOBS)
    assert not any("headgate" in job.pyspark.code for job in JOBS)
