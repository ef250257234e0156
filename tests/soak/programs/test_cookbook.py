"""The jobs of docs/cookbook.md: right, and shorter with Headgate than without."""

import re
from pathlib import Path

import pytest
from benches import cookbook
from tests.kit.own_driver import drive

#: Rows of each input, by the SQL of its columns over ``id``. Keys have nulls, and each key above 900 has one row.
TABLES = {
    "clicks": (
        4_000,
        "CASE WHEN id < 20 THEN 900 + id WHEN id % 31 = 0 THEN NULL ELSE id * 7 % 13 END AS user",
        "id * 7919 % 4001 * 40 AS second",
        "CASE WHEN id % 17 = 0 THEN NULL ELSE id % 9 END AS page",
        "id * 31 % 997 AS cents",
    ),
    "documents": (
        240,
        "id",
        # Every sixth document repeats the one before it but for a word.
        "concat_ws(' ', transform(sequence(0, 59), n -> concat('w', (id - int(id % 6 = 5 AND n > 0)) * 100 + n))) AS text",
    ),
    "trades": (
        2_000,
        "CASE WHEN id < 5 THEN 900 + id WHEN id % 41 = 0 THEN NULL ELSE id % 7 END AS symbol",
        "id * 10 AS at",
        "id % 100 AS paid",
    ),
    "quotes": (
        3_000,
        "CASE WHEN id > 2990 THEN id WHEN id % 43 = 0 THEN NULL ELSE id % 8 END AS symbol",
        "500 + id * 5 AS at",
        "id % 90 AS quoted",
    ),
    "invoices": (
        1_500,
        "CASE WHEN id < 5 THEN 900 + id WHEN id % 47 = 0 THEN NULL ELSE id % 6 END AS customer",
        "id",
        "id div 7 AS day",
        "id * 13 % 101 + 1 AS cents",
    ),
    "payments": (
        800,
        "CASE WHEN id < 3 THEN 900 + id WHEN id % 37 = 0 THEN NULL ELSE id % 7 END AS customer",
        "id AS day",
        "id * 29 % 151 + 1 AS cents",
    ),
    "readings": (
        5_000,
        "CASE WHEN id < 5 THEN 900 + id WHEN id % 53 = 0 THEN NULL ELSE id % 5 END AS machine",
        "id * 7 % 3000 AS at",
        "id % 211 AS value",
    ),
    "runs": (
        300,
        "CASE WHEN id < 7 THEN 900 + id WHEN id % 59 = 0 THEN NULL ELSE id % 6 END AS machine",
        "id AS run",
        "id * 11 % 2900 AS begin",
        "id * 11 % 2900 + id % 90 AS end",
    ),
    "pages": (
        600,
        "id AS page",
        "1 + id % 3 / 2D AS rank",
        # Every tenth page has no links, and some links lead to no page.
        "IF(id % 10 = 0, array(), transform(sequence(1, 1 + id % 5), n -> id * n * 17 % 700)) AS targets",
    ),
    "lines": (
        3_000,
        "CASE WHEN id % 50 = 0 THEN 'warning' WHEN id % 51 > 0 THEN concat('user=', id % 12, ' kind=get took=', id * 7 % 900, 'ms') END AS line",
    ),
}

#: By job, a query over the inputs that needs no Python.
ANSWERS = {
    # The state is the begin of the last session and the click before; a session of each user is a struct.
    "sessions": """
        SELECT user, found.begin AS second, found.clicks FROM (
            SELECT user, explode(aggregate(
                array_sort(collect_list(second)),
                cast(array() AS array<struct<begin: bigint, last: bigint, clicks: bigint>>),
                (known, at) -> CASE
                    WHEN size(known) > 0 AND at - known[size(known) - 1].last <= 1800
                        AND at - known[size(known) - 1].begin <= 14400
                    THEN concat(slice(known, 1, size(known) - 1), array(named_struct(
                        'begin', known[size(known) - 1].begin, 'last', at,
                        'clicks', known[size(known) - 1].clicks + 1)))
                    ELSE concat(known, array(named_struct('begin', at, 'last', at, 'clicks', 1L)))
                END)) AS found
            FROM clicks GROUP BY user)""",
    "near_duplicates": """
        SELECT a.id, b.id AS id_2
        FROM (SELECT id, split(text, ' ') AS words FROM documents) a
        JOIN (SELECT id, split(text, ' ') AS words FROM documents) b ON a.id < b.id
        WHERE size(array_intersect(a.words, b.words)) / size(array_union(a.words, b.words)) > 0.7""",
    "features": """
        SELECT user, sum(cents) AS cents,
            sum(cents * pow(0.5D, after / 5)) / sum(pow(0.5D, after / 5)) AS trend,
            count(DISTINCT page) + max(cast(page IS NULL AS int)) AS pages, percentile(pause, 0.5) AS pause
        FROM (
            SELECT user, page, cents,
                row_number() OVER (PARTITION BY user ORDER BY second DESC) - 1 AS after,
                second - lag(second) OVER (PARTITION BY user ORDER BY second) AS pause
            FROM clicks)
        GROUP BY user""",
    "as_of": """
        SELECT first(t.symbol) AS symbol, t.at, first(t.paid) AS paid, max_by(q.quoted, q.at) AS quoted
        FROM trades t LEFT JOIN quotes q ON t.symbol = q.symbol AND q.at <= t.at
        GROUP BY t.at""",
    "invoices": """
        SELECT first(i.customer) AS customer, i.id, min(p.day) AS settled
        FROM (SELECT *, sum(cents) OVER (PARTITION BY customer ORDER BY day, id) AS total FROM invoices) i
        LEFT JOIN (SELECT *, sum(cents) OVER (PARTITION BY customer ORDER BY day) AS total FROM payments) p
        ON i.customer = p.customer AND p.total >= i.total
        GROUP BY i.id""",
    "intervals": """
        SELECT run, count(at) AS n, coalesce(sum(value), 0) AS total
        FROM runs LEFT JOIN readings ON runs.machine = readings.machine AND at >= begin AND at < end
        GROUP BY run""",
    "ranks": """
        SELECT pages.page, targets, 0.15D + 0.85D * coalesce(got, 0) AS rank
        FROM pages LEFT JOIN (
            SELECT page, sum(part) AS got
            FROM (SELECT explode(targets) AS page, rank / size(targets) AS part FROM pages) GROUP BY page) given
        ON pages.page = given.page""",
    "largest": """
        SELECT page, cents FROM (
            SELECT page, cents, row_number() OVER (PARTITION BY page ORDER BY cents DESC) AS n FROM clicks)
        WHERE n <= 3""",
    "logs": r"""
        SELECT cast(user AS long) AS user, max(cast(took AS long)) AS took, count(*) AS requests
        FROM (
            SELECT regexp_extract(line, r'user=(\d+)', 1) AS user,
                regexp_extract(line, r'took=(\d+)ms', 1) AS took
            FROM lines WHERE line RLIKE 'user=')
        GROUP BY user""",
}

#: By job, the schema of a function that Spark calls for each key, for what no query says.
FITTED = "user long, model array<double>"


def compared(spark):
    """Run each job of the page in all ways; return the rows of each, and those of Spark's answer."""
    tables = {name: made(spark, *of) for name, of in TABLES.items()}
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    found = {}
    for job in cookbook.jobs():
        results = {
            "headgate": job.headgate.run(tables.get),
            "pyspark": job.pyspark.run(tables.get),
            "spark": answer(spark, job, tables),
        }
        results |= {name: way(tables.get) for name, way in cookbook.by_key(job).items()}
        found[job.name] = {name: rows(df) for name, df in results.items()}
    return found


def made(spark, count, *columns):
    return spark.range(0, count, 1, 5).selectExpr(*columns)


def answer(spark, job, tables):
    if job.name in ANSWERS:
        return spark.sql(ANSWERS[job.name])
    return tables["clicks"].groupBy("user").applyInArrow(fit, FITTED)


def fit(clicks):
    """The same least squares, by the normal equations."""
    import numpy as np
    import pyarrow as pa

    angle = 2 * np.pi * clicks["second"].to_numpy() / 86400
    waves = np.array([np.ones(len(angle)), np.sin(angle), np.cos(angle)])
    model = np.linalg.pinv(waves @ waves.T) @ waves @ clicks["cents"].to_numpy()
    return pa.table({"user": clicks["user"][:1], "model": [model]})


def rows(df):
    """Return the rows as text, sorted, with floats to five digits."""
    return sorted(str([plain(row[name]) for name in sorted(df.columns)]) for row in df.collect())


def plain(value):
    if isinstance(value, list):
        return [plain(one) for one in value]
    # Not -0.0, which is equal to 0.0 but is another text.
    return round(value, 5) + 0.0 if isinstance(value, float) else value


pytest.importorskip("polars")

ROOT = Path(__file__).resolve().parents[3]
JOBS = cookbook.jobs()

BODY = f"""
sys.path.insert(0, {str(ROOT)!r})
from pyspark import cloudpickle
from tests.soak.programs import test_cookbook
cloudpickle.register_pickle_by_value(test_cookbook)
tell(**test_cookbook.compared(spark))
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
