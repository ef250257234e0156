"""iterate(): rounds of messages, against the same by Spark's joins and by plain Python."""

import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Window, functions
from tests.kit.masters import PYSPARK
from tests.kit.waiting import wait_until

import headgate as hg
from headgate.errors import NotBuiltError, OptionError, UnknownColumnError
from headgate.source import FileSource
from headgate.spark import Input, iterate, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

side_by_side = pytest.mark.skipif(
    PYSPARK < (4, 1), reason="needs Spark 4.1, which reads unions partition by partition"
)
PAGES = 200
LABELS = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("node", "label")])


@pytest.fixture
def pages(spark):
    return spark.range(0, PAGES, 1, 3).selectExpr("id AS page", "1D AS rank")


@pytest.fixture
def links(spark):
    """1,000 links of 200 pages, some of which have none."""
    found = spark.range(0, 1000, 1, 4).selectExpr(
        "pmod(xxhash64(id), 150) AS source", "pmod(xxhash64(id, 1), 200) AS target"
    )
    count = functions.count("*").over(Window.partitionBy("source"))
    return found.withColumn("share", 1.0 / count)


def give(ranks, links):
    ranks, links = ranks.read_all(), links.read_all()
    found = links.join(ranks, "source", "page", "inner")
    value = pc.multiply(found["share"], found["rank"])
    return pa.table({"page": found["target"], "rank": value})


def rank(ranks, messages):
    pages, sums = ranks.read_all()["page"], {}
    for message in messages.read_all().to_pylist():
        sums[message["page"]] = sums.get(message["page"], 0.0) + message["rank"]
    new = [0.15 + 0.85 * sums.get(page, 0.0) for page in pages.to_pylist()]
    return pa.table({"page": pages, "rank": pa.array(new, pa.float64())})


def ranked(pages, links, rounds, **more):
    job = {"by": "page", "send": give, "update": rank, "message_schema": "page long, rank double"}
    return iterate(pages, Input(links, by="source"), rounds=rounds, **{**job, **more})


def ranked_by_spark(pages, links, rounds):
    ranks = {row.page: row.rank for row in pages.collect()}
    edges = links.collect()
    for _ in range(rounds):
        sums = dict.fromkeys(ranks, 0.0)
        for edge in edges:
            sums[edge.target] += ranks[edge.source] * edge.share
        ranks = {page: 0.15 + 0.85 * value for page, value in sums.items()}
    return ranks


def joined_by_spark(pages, links):
    """One round by Spark's joins."""
    sums = links.join(pages, links.source == pages.page).groupBy("target")
    sums = sums.agg(functions.sum(functions.col("rank") * functions.col("share")).alias("given"))
    both = pages.select("page").join(sums, functions.col("page") == functions.col("target"), "left")
    return both.selectExpr("page", "0.15D + 0.85D * coalesce(given, 0D) AS rank")


def as_dict(df):
    rows = df.collect()
    found = {row[0]: row[1] for row in rows}
    assert len(found) == len(rows), "no key twice"
    return found


@side_by_side
@pytest.mark.parametrize(("rounds", "partitions"), [(1, 3), (4, 1), (3, 9)])
def test_ranks_are_those_of_sparks_joins(pages, links, rounds, partitions):
    out = ranked(pages, links, rounds, num_partitions=partitions)
    assert out.rdd.getNumPartitions() == partitions
    assert out.schema == pages.schema
    found = as_dict(out)
    assert found == pytest.approx(ranked_by_spark(pages, links, rounds))
    if rounds == 1:
        assert found == pytest.approx(as_dict(joined_by_spark(pages, links)))


@side_by_side
def test_rows_are_where_spark_places_them(pages, links):
    def placed(df):
        return sorted(map(tuple, df.selectExpr("spark_partition_id()", "page").collect()))

    assert placed(ranked(pages, links, 2, num_partitions=5)) == placed(pages.repartition(5, "page"))


@side_by_side
def test_links_are_placed_once(pages, links):
    out = ranked(pages, links, 4, num_partitions=2)
    assert out.count() == PAGES
    stats = last_stats()
    wait_until(lambda: last_stats().state == "done", "all tasks have reported", 10)
    assert stats.made_again == 0
    plan = out._jdf.queryExecution().executedPlan().toString()
    assert plan.count("headgate") > 0
    out.collect()
    assert last_stats().made_again == 0


@side_by_side
def test_a_cached_input_gives_the_same(pages, links):
    expected = ranked_by_spark(pages, links, 3)
    cached = links.cache()
    try:
        assert as_dict(ranked(pages, cached, 3, num_partitions=2)) == pytest.approx(expected)
    finally:
        cached.unpersist(blocking=True)


@pytest.mark.soak
@side_by_side
def test_the_result_is_an_ordinary_dataframe(spark, pages, links):
    out = ranked(pages, links, 2, num_partitions=3)
    expected = ranked_by_spark(pages, links, 2)
    assert out.coalesce(1).count() == PAGES
    assert out.join(pages.select("page"), "page").count() == PAGES
    again = ranked(out, links, 2, num_partitions=4)
    assert as_dict(again) == pytest.approx(ranked_by_spark(pages, links, 4))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert as_dict(ranked(pages, links, 2, num_partitions=3)) == pytest.approx(expected)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")


# The smallest number of each component, of a graph whose components are chains.


def spread(labels, links):
    found = links.read_all().join(labels.read_all(), "source", "node", "inner")
    return pa.table({"node": found["target"], "label": found["label"]})


def smaller(labels, messages):
    """Return the nodes that got a smaller label."""
    best = messages.read_all().group_by("node").aggregate([("label", "min")])
    both = labels.read_all().join(best, "node", "node", "inner")
    both = both.filter(pc.less(both["label_min"], both["label"]))
    return pa.table({"node": both["node"], "label": both["label_min"]}, schema=LABELS)


def components(spark, delta, calls=None):
    nodes = spark.range(0, 60, 1, 2).selectExpr("id AS node", "id AS label")
    # Chains of ten nodes.
    edges = nodes.where("node % 10 < 9").selectExpr("node AS source", "node + 1 AS target")
    edges = edges.union(edges.selectExpr("target", "source"))

    def send(labels, links):
        if calls is not None:
            rows = labels.read_all()
            calls.add(rows.num_rows)
            labels = hg.Batches(rows.to_batches(), rows.schema)
        return spread(labels, links)

    def whole(labels, messages):
        labels = labels.read_all()
        changed = smaller(hg.Batches(labels.to_batches(), labels.schema), messages)
        kept = pc.invert(pc.is_in(labels["node"], changed["node"].combine_chunks()))
        return pa.concat_tables([labels.filter(kept), changed])

    return iterate(
        nodes,
        Input(edges, by="source"),
        by="node",
        send=send,
        update=smaller if delta else whole,
        message_schema="node long, label long",
        rounds=14,
        delta=delta,
        num_partitions=4,
    )


@pytest.mark.soak
@side_by_side
@pytest.mark.parametrize("delta", [False, True])
def test_connected_components(spark, delta):
    assert as_dict(components(spark, delta)) == {node: node // 10 * 10 for node in range(60)}


@pytest.mark.soak
@side_by_side
def test_with_delta_send_gets_only_what_changed(spark):
    calls = spark.sparkContext.accumulator(0)
    assert components(spark, delta=True, calls=calls).count() == 60
    # All nodes once, then the node at distance d from the smallest one in the rounds up to d.
    assert calls.value == 60 + 6 * sum(range(10))


@side_by_side
def test_with_delta_an_untouched_partition_keeps_its_state(spark):
    """Of few rows, which travel in rows, and of many, which are in files."""
    for width in (1, 20_000):
        state = spark.range(0, 100, 1, 2).selectExpr("id", "0 AS n", f"repeat('x', {width}) AS s")
        out = iterate(
            state,
            by="id",
            send=lambda rows: rows.read_all().filter(pc.field("id") == 7).select(["id"]),
            update=lambda rows, messages: (
                rows.read_all()
                .filter(pc.is_in(pc.field("id"), messages.read_all()["id"].combine_chunks()))
                .set_column(1, "n", pa.array([1] * 1, pa.int32()))
            ),
            message_schema="id long",
            rounds=4,
            delta=True,
            num_partitions=3,
        )
        found = sorted(map(tuple, out.selectExpr("id", "n", "length(s)").collect()))
        assert found == [(i, int(i == 7), width) for i in range(100)]


@side_by_side
def test_k_means_with_copies_of_the_centroids(spark):
    rng = np.random.default_rng(7)
    points = np.concatenate([rng.normal(10 * n, 1, (200, 2)) for n in range(3)])
    first = points[[0, 200, 400]]
    table = pa.table({"x": points[:, 0], "y": points[:, 1]})
    centroids = pa.table({"id": [0, 1, 2], "x": first[:, 0], "y": first[:, 1]})

    def send(centroids, points):
        at = centroids.read_all().sort_by("id")
        at = np.column_stack([at["x"], at["y"]])
        rows = points.read_all()
        rows = np.column_stack([rows["x"], rows["y"]]).reshape(-1, 2)
        mine = ((rows[:, None] - at[None]) ** 2).sum(axis=2).argmin(axis=1)
        sums = [np.bincount(mine, weights, 3) for weights in (None, *rows.T)]
        return pa.table(dict(zip(["id", "n", "x", "y"], [np.arange(3), *sums], strict=True)))

    def update(centroids, messages):
        sums = messages.read_all().group_by("id").aggregate([(c, "sum") for c in "nxy"])
        sums = sums.sort_by("id")
        x, y = (pc.divide(sums[f"{c}_sum"], sums["n_sum"]) for c in "xy")
        return pa.table({"id": sums["id"], "x": x, "y": y})

    out = iterate(
        spark.createDataFrame(centroids),
        Input(spark.createDataFrame(table).repartition(5), by=hg.RoundRobinSelector(by_rows=True)),
        by=hg.BroadcastSelector(),
        send=send,
        update=update,
        message_schema="id long, n double, x double, y double",
        rounds=5,
        num_partitions=3,
    )
    at = first
    for _ in range(5):
        mine = ((points[:, None] - at[None]) ** 2).sum(axis=2).argmin(axis=1)
        at = np.array([points[mine == n].mean(axis=0) for n in range(3)])
    rows = out.selectExpr("spark_partition_id() AS p", "*").collect()
    assert len(rows) == 9, "each partition has a copy"
    for row in rows:
        assert (row.x, row.y) == pytest.approx(tuple(at[row.id]))


@pytest.mark.soak
@side_by_side
def test_no_rows(spark, pages, links):
    none = pages.where("page < 0")
    assert ranked(none, links.where("target < 0"), 3, num_partitions=3).collect() == []
    few = as_dict(ranked(pages, links.where("source < 0"), 3, num_partitions=30))
    assert few == dict.fromkeys(range(PAGES), 0.15)


@side_by_side
def test_a_source_and_maps_of_inputs(spark, pages, links, tmp_path):
    (tmp_path / "links").mkdir()
    import pyarrow.parquet as pq

    pq.write_table(links.selectExpr("source", "target").toArrow(), tmp_path / "links" / "1.parquet")

    def shared(batches):
        rows = batches.read_all()
        counts = rows.group_by("source").aggregate([("target", "count")])
        rows = rows.join(counts, "source")
        return pa.table(
            {
                "source": rows["source"],
                "target": rows["target"],
                "share": pc.divide(1.0, rows["target_count"]),
            }
        )

    schema = "source long, target long, share double"
    source = FileSource(tmp_path / "links", format="parquet")
    given = Input(source, by="source", map=shared, map_schema=schema)
    job = {"by": "page", "send": give, "update": rank, "message_schema": "page long, rank double"}
    out = iterate(pages, given, rounds=2, num_partitions=3, **job)
    assert as_dict(out) == pytest.approx(ranked_by_spark(pages, links, 2))


@side_by_side
@pytest.mark.parametrize("name", ["send", "update"])
def test_a_function_that_raises_fails_the_job_with_its_traceback(pages, links, name):
    def fails(*_):
        raise ValueError("ledger 7")

    with pytest.raises(PySparkException, match="ledger 7"):
        ranked(pages, links, 3, num_partitions=2, **{name: fails}).collect()


@pytest.mark.soak
@side_by_side
def test_returned_columns_must_fit(pages, links):
    def wrong(ranks, _):
        return ranks.read_all().select(["page"])

    with pytest.raises(PySparkException, match="update returned no column 'rank'"):
        ranked(pages, links, 2, update=wrong).collect()
    with pytest.raises(PySparkException, match="send returned no column 'rank'"):
        ranked(pages, links, 2, send=wrong).collect()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"rounds": 0}, OptionError, "rounds=0 is not a whole number from 1 to 10000"),
        ({"rounds": 10_001}, OptionError, "rounds=10001"),
        ({"until": "done", "delta": True}, OptionError, "until='done' is unknown"),
        ({"until": "unchanged"}, OptionError, "until needs delta=True"),
        ({"rounds": True}, OptionError, "rounds=True"),
        ({"send": None}, OptionError, "send is None, not a function"),
        ({"send": lambda one: one}, OptionError, "send cannot be called with state and links"),
        ({"update": lambda one: one}, OptionError, "update cannot be called with state and mess"),
        ({"message_schema": None}, OptionError, "message_schema is None"),
        ({"message_schema": "rank double"}, UnknownColumnError, "no column 'page' in the messages"),
        ({"message_schema": "page int"}, OptionError, "keys of the inputs have other types"),
        ({"by": "pag"}, UnknownColumnError, "no column 'pag'"),
        (
            {"by": ["page", "rank"], "delta": True},
            OptionError,
            "keys of the inputs have other types",
        ),
        ({"by": hg.BroadcastSelector(), "delta": True}, OptionError, "delta=True needs one column"),
        ({"mode": "spark"}, OptionError, "the rounds of an iteration are kept"),
        ({"map_schema": "n long"}, OptionError, "an iteration has no map"),
        ({"parallelism": 3}, OptionError, "parallelism"),
        ({"memmory": "1g"}, OptionError, "memmory"),
        ({"num_partitions": 0}, OptionError, "num_partitions"),
    ],
)
def test_wrong_calls(pages, links, change, error, says):
    with pytest.raises(error, match=says):
        ranked(pages, links, **{"rounds": 2, **change})


def test_streams_and_inputs_without_columns(spark, pages, links):
    with pytest.raises(OptionError, match="streaming"):
        ranked(spark.readStream.format("rate").load().selectExpr("value page"), links, 2)
    with pytest.raises(OptionError, match="state has no columns"):
        ranked(pages.select(), links, 2, by=hg.BroadcastSelector())
    with pytest.raises(OptionError, match="links is a str"):
        iterate(
            pages, "links", by="page", send=give, update=rank, message_schema="page long", rounds=1
        )


@pytest.mark.soak
def test_a_spark_that_cannot_read_side_by_side(spark, pages, links):
    name = "spark.sql.unionOutputPartitioning"
    before = spark.conf.get(name, None)
    spark.conf.set(name, "false")
    try:
        with pytest.raises(NotBuiltError, match="side by side"):
            ranked(pages, links, 2, num_partitions=2)
        one = ranked(pages, links, 2, num_partitions=1)
        assert as_dict(one) == pytest.approx(ranked_by_spark(pages, links, 2))
        spark.conf.set(name, "true")
        if PYSPARK >= (4, 1):
            late = ranked(pages, links, 2, num_partitions=2)
            spark.conf.set(name, "false")
            with pytest.raises(PySparkException, match="HG-9001"):
                late.collect()
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@side_by_side
def test_files_go_when_the_plan_is_garbage(spark, pages, links):
    import gc
    from pathlib import Path

    folder = Path(spark.conf.get("spark.local.dir"))
    out = ranked(pages, links, 2, num_partitions=2)
    assert out.count() == PAGES
    name = last_stats().name
    del out

    def gone():
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        time.sleep(0.5)
        return not [path for path in folder.rglob("kept-*") if name in path.name]

    wait_until(gone, "the files are deleted", 40)
