"""The sentences of ``explain()``: for each the facts that cause it, and facts that do not."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.kit.plans import (
    CLUSTER,
    CONNECT,
    LOCAL,
    ROWS,
    TABLE,
    a_source,
    an_exchange,
    an_input,
    said,
)

from headgate import (
    BroadcastSelector,
    ForwardSelector,
    GlobalSelector,
    HashSelector,
    KeyGroupSelector,
    RebalanceSelector,
    RoundRobinSelector,
    ShuffleSelector,
)
from headgate.spark.executor_memory import conf_size
from headgate.spark.explained.explain_exchange import placement_sentence
from headgate.spark.explained.explanation import Explanation
from headgate.spark.explained.rendering import WIDTH, rows_of
from headgate.spark.explained.tables import Table
from headgate.spark.plan.facts import Placement, placement
from headgate.spark.plan.sizes import AutoPartitions
from headgate.spark.shuffle_files import PLUGIN
from headgate.spark.slots import Slots

MIB = 1 << 20


def mapped(**changes):
    return an_input(has_map=True, **changes)


def steps(facts):
    return {copied.step: copied for copied in said(facts).copies}


def codes(facts, *tables):
    return [advice.code for advice in said(facts, *tables).faster]


def check(found, name):
    return next(one for one in found.checks if one.name == name)


# --- Partitions and producers ---


@pytest.mark.parametrize(
    ("named", "source"),
    [
        ({"options": {"num_partitions": 3}}, "argument"),
        ({"confs": {"spark.headgate.numPartitions": "3"}}, "spark.headgate.numPartitions"),
        ({"environ": {"HEADGATE_NUM_PARTITIONS": "3"}}, "HEADGATE_NUM_PARTITIONS"),
    ],
)
def test_the_origin_of_a_given_number_of_partitions(named, source):
    found = said(an_exchange(mapped(), **named)).partitions
    assert (found.number, found.source) == (3, source)
    assert source in found.why


def test_the_origin_of_the_default_number_of_partitions():
    found = said(an_exchange()).partitions
    assert (found.number, found.source) == (4, "default")
    assert found.why == "one for each slot (2 executors x 2 cores)"


def test_the_producers_of_a_dataframe_are_its_partitions():
    (one,) = said(an_exchange(mapped())).inputs
    assert (one.producers.number, one.producers.source) == (7, "plan")
    (unseen,) = said(an_exchange(mapped()), None).inputs
    assert (unseen.producers.number, unseen.producers.source) == (None, "unknown")


def test_the_producers_of_a_source():
    (one,) = said(an_exchange(a_source())).inputs
    assert (one.producers.number, one.producers.source) == (16, "default")
    assert "there are 30 splits" in one.producers.why
    (given,) = said(an_exchange(a_source(producers=2), options={"parallelism": 2})).inputs
    assert (given.producers.number, given.producers.source) == (2, "argument")


def test_why_spark_reads_a_dataframe_is_said_of_it():
    (one,) = said(an_exchange(mapped(spark_reads="it computes a column"))).inputs
    assert one.spark_reads == "it computes a column"


# --- Placement ---


def by_parity(batch):
    return batch


@pytest.mark.parametrize(
    ("by", "kind", "sentence"),
    [
        (["a", ("b", "c")], "hash", "by a, b.c, with Spark's hash"),
        (HashSelector(["a"]), "hash", "by a, with Spark's hash"),
        (KeyGroupSelector("a"), "key groups", "by the key group of a"),
        (None, "turn", "in turn, batch by batch"),
        (RoundRobinSelector(by_rows=True), "turn", "in turn, row by row, by RoundRobinSelector"),
        (RebalanceSelector(), "turn", "in turn, batch by batch, by RebalanceSelector"),
        (ShuffleSelector(seed=1), "random", "at random, batch by batch, by ShuffleSelector"),
        (BroadcastSelector(), "all", "in every partition"),
        (GlobalSelector(), "one", "all in partition 0"),
        (ForwardSelector(), "one", "all in partition 0"),
        (by_parity, "function", "by the function by_parity"),
    ],
)
def test_how_rows_are_placed(by, kind, sentence):
    found = placement(by)
    assert found.kind == kind
    assert placement_sentence(found, by_spark=False).startswith(sentence)


def test_spark_spreads_single_rows():
    for by in (None, RebalanceSelector(), ShuffleSelector(seed=1)):
        assert placement_sentence(placement(by), by_spark=True) == "in turn, row by row, by Spark"
    assert placement_sentence(placement(["a"]), by_spark=True).startswith("by a, with Spark's hash")


# --- Copies ---


def test_rows_that_spark_moves_are_not_copied_by_us():
    found = said(an_exchange())
    assert found.copies == ()
    assert found.in_place == ("the rows stay in Spark's own format: no Python function gets them",)


def test_spark_converts_rows_for_the_only_function():
    found = steps(an_exchange(has_reduce=True))
    assert set(found) == {"reduce", "result"}
    assert found["reduce"].columns == ("user", "n")
    assert said(an_exchange(has_reduce=True)).in_place == ()


def test_spark_converts_rows_for_a_function_that_places_them():
    def where(by):
        return an_exchange(an_input(placement=placement(by)), there=CONNECT)

    assert said(where(by_parity)).mode == "repartition"
    assert set(steps(where(by_parity))) == {"input", "shuffle"}
    assert said(where(by_parity)).in_place == ()
    assert steps(where(ShuffleSelector(seed=1))) == {}


def test_the_steps_of_a_dataframe_with_a_map():
    wide = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    found = steps(an_exchange(mapped(map_input=wide)))
    assert set(found) == {"input", "pages", "result"}
    assert found["input"].columns == ("a", "b")
    assert "to Arrow for map" in found["input"].why


def test_a_source_does_not_pass_the_jvm():
    assert "input" not in steps(an_exchange(a_source()))


@pytest.mark.parametrize(
    ("kind", "declared", "sentence"),
    [
        (pa.uint8(), pa.int16(), "uint8 is cast to int16"),
        (pa.date64(), pa.date32(), "is cast to date32"),
        (pa.large_string(), pa.string(), "large_string becomes string where the row is copied"),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), "becomes string where the row"),
    ],
)
def test_columns_of_a_source_in_another_type(kind, declared, sentence):
    read, sent = (pa.schema([("a", one), ("b", pa.int8())]) for one in (kind, declared))
    found = steps(an_exchange(a_source(read=read, sent=sent)))["source"]
    assert found.columns == ("a",)
    assert sentence in found.why
    # map gets the batches as the source gives them.
    assert "source" not in steps(an_exchange(a_source(read=read, sent=ROWS, has_map=True)))


def test_columns_of_a_source_in_the_declared_types_are_not_cast():
    assert "source" not in steps(an_exchange(a_source()))
    zones = [pa.schema([("a", pa.timestamp("us", zone))]) for zone in ("UTC", "Asia/Tokyo")]
    assert "source" not in steps(an_exchange(a_source(read=zones[0], sent=zones[1])))


def test_each_row_is_copied_into_a_page_once():
    assert steps(an_exchange(mapped()))["pages"].why.startswith("each row is copied once")
    assert "pages" not in steps(an_exchange())


def test_a_worker_sorts_unless_spark_moves_the_rows():
    found = steps(an_exchange(mapped(sort_within=("n",))))["sort"]
    assert found.why == "a worker sorts the rows of a partition by n"
    assert "sort" not in steps(an_exchange(an_input(sort_within=("n",))))
    assert "sort" not in steps(an_exchange(mapped()))


@pytest.mark.parametrize(
    ("there", "named", "sentence"),
    [
        (LOCAL, {}, "consumers map the pages of producers and read"),
        (CLUSTER, {}, "on their own host, receive others into segments"),
        (CONNECT, {"options": {"mode": "kept"}}, "binary values of Spark's shuffle"),
    ],
)
def test_where_consumers_read_columns_in_place(there, named, sentence):
    (found,) = said(an_exchange(mapped(), there=there, **named)).in_place
    assert sentence in found


def test_small_pages_are_copied_together():
    (kept,) = said(an_exchange(mapped())).in_place
    assert "at most half of 256k are copied together" in kept
    (large,) = said(an_exchange(mapped(), options={"batch_bytes": "1m"})).in_place
    assert "at most half of 1m" in large


# --- Memory and disk ---


def test_the_memory_of_an_executor_against_its_limit():
    found = said(an_exchange(mapped())).memory
    assert (found.pool, found.sort, found.workers, found.total) == (64 * MIB, 0, 2, 128 * MIB)
    assert (found.limit, found.limited_by) == (384 * MIB, "spark.executor.memoryOverhead")
    assert found.fits is True


def test_rows_that_wait_to_be_sorted_take_as_much_again():
    found = said(an_exchange(mapped(sort_within=("n",)))).memory
    assert (found.sort, found.total) == (64 * MIB, 256 * MIB)


@pytest.mark.parametrize(
    ("master", "conf", "limit", "by"),
    [
        ("yarn", {"spark.executor.memoryOverhead": "100"}, 100 * MIB, "memoryOverhead"),
        ("yarn", {"spark.executor.memory": "10g"}, 1 << 30, "memoryOverhead"),
        ("yarn", {"spark.executor.pyspark.memory": "1g"}, 1 << 30, "pyspark.memory"),
        ("k8s://x", {"spark.executor.memoryOverhead": "1g"}, 1 << 30, "memoryOverhead"),
        ("k8s://x", {"spark.executor.memory": "10g"}, 4 << 30, "memoryOverhead"),
        ("yarn", {"spark.executor.memoryOverhead": "no size"}, 384 * MIB, "memoryOverhead"),
        ("spark://x", {"spark.executor.memoryOverhead": "1g"}, None, ""),
        ("spark://x", {"spark.executor.pyspark.memory": "1g"}, 1 << 30, "pyspark.memory"),
        ("local[4]", {}, None, ""),
    ],
)
def test_what_limits_the_memory(master, conf, limit, by):
    found = said(an_exchange(mapped()), master=master, conf=conf)
    assert found.memory.limit == limit
    assert found.memory.limited_by.endswith(by)
    assert bool(found.memory.limited_by) == bool(by)
    assert ("memory" in {one.name for one in found.checks}) == (limit is not None)


def test_pools_that_do_not_fit():
    conf = {"spark.executor.memoryOverhead": "100m"}
    found = said(an_exchange(mapped()), conf=conf)
    assert found.memory.fits is False
    assert check(found, "memory").ok is False
    assert 'memory="16m"' in check(found, "memory").why
    assert check(said(an_exchange(mapped())), "memory").ok is True


def test_without_executors_all_slots_are_workers_of_this_host():
    assert (
        said(
            an_exchange(mapped(), there=replace(LOCAL, slots=Slots(4, ""))), master="local[4]"
        ).memory.workers
        == 4
    )
    assert (
        said(an_exchange(mapped(), there=replace(CLUSTER, slots=Slots(4, "")))).memory.workers
        is None
    )


def test_spark_takes_no_memory_of_ours():
    found = said(an_exchange()).memory
    assert (found.pool, found.total, found.fits) == (0, 0, None)


def test_sizes_without_a_unit_are_mebibytes():
    sizes = {"384": 384 * MIB, "1g": 1 << 30, "512m": 512 * MIB, "-1": None, "": None}
    assert {text: conf_size(text, MIB) for text in sizes} == sizes


def test_bytes_on_disk():
    plain = an_input(placement=Placement("all"))
    assert said(an_exchange(plain)).disk.bytes == TABLE.bytes
    assert said(an_exchange(plain), Table(7, "", None)).disk.bytes is None
    assert said(an_exchange(mapped())).disk.bytes is None
    assert "what map returns" in said(an_exchange(mapped())).disk.why
    assert said(an_exchange()).disk.bytes == 0
    for sort in ((), ("n",)):
        why = said(an_exchange(mapped(sort_within=sort))).disk.why
        assert ("more than 64m of rows to sort" in why) == bool(sort)
    assert said(an_exchange(mapped(), there=CONNECT, options={"mode": "kept"})).disk.bytes == 0


# --- Checks ---


@pytest.mark.parametrize(
    ("facts", "ok", "sentence"),
    [
        (an_exchange(mapped(), options={"num_partitions": 9}), True, "9 consumers run in 3 waves"),
        (an_exchange(mapped(), options={"num_partitions": 4}), True, "4 consumers run at once"),
        (
            an_exchange(mapped(), there=replace(CLUSTER, slots=Slots(0, ""))),
            None,
            "no slot is there yet",
        ),
        (an_exchange(mapped(), there=CONNECT), None, "planned with 4"),
    ],
)
def test_slots(facts, ok, sentence):
    found = check(said(facts), "slots")
    assert found.ok is ok
    assert sentence in found.why


def test_dynamic_allocation_and_speculation():
    on = {"spark.dynamicAllocation.enabled": "true", "spark.speculation": "true"}
    off = said(an_exchange(mapped()))
    assert [check(off, name).why for name in ("dynamic allocation", "speculation")] == ["off"] * 2
    found = said(an_exchange(mapped()), conf=on)
    assert "any number of executors" in check(found, "dynamic allocation").why
    assert "exactly one counts" in check(found, "speculation").why
    limited = {**on, "spark.dynamicAllocation.maxExecutors": "9"}
    some = said(an_exchange(mapped()), conf=limited)
    assert "at most 9 executors" in check(some, "dynamic allocation").why


@pytest.mark.parametrize(
    "confs",
    [
        {"spark.shuffle.service.enabled": "TRUE"},
        {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"},
        {PLUGIN: "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO"},
    ],
)
def test_shuffle_files_that_outlive_an_executor_are_a_problem_of_kept_exchanges(confs):
    lost = check(said(an_exchange(mapped()), conf=confs), "lost executors")
    assert lost.ok is False
    assert next(iter(confs)) in lost.why
    assert "consumers on other hosts fail" in lost.why
    by_spark = said(an_exchange(mapped(), options={"mode": "spark"}), conf=confs)
    here = said(an_exchange(mapped(), there=LOCAL), conf=confs)
    for explained in (by_spark, here):
        assert "lost executors" not in [each.name for each in explained.checks]


def test_shuffle_files_that_end_with_an_executor_are_no_problem():
    confs = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "false",
    }
    assert check(said(an_exchange(mapped()), conf=confs), "lost executors").ok is True


def test_the_python_of_the_workers_is_seen_on_this_host_only():
    assert check(said(an_exchange(there=LOCAL), master="local[4]"), "versions").ok is True
    elsewhere = check(said(an_exchange(), master="yarn"), "versions")
    assert elsewhere.ok is None
    assert "doctor(spark) examines it" in elsewhere.why
    # There is no doctor on Spark Connect.
    on_server = check(said(an_exchange(there=CONNECT), master="local[4]"), "versions")
    assert on_server.ok is None
    assert "doctor" not in on_server.why


# --- Advice, and what is not known ---


def test_files_that_workers_could_read():
    scan = Table(7, "", 10, is_scan=True)
    by_spark = {"read": "spark"}
    assert codes(an_exchange(mapped(), options=by_spark), scan) == ["read-in-workers"]
    assert codes(an_exchange(mapped(), options=by_spark), TABLE) == []
    assert codes(an_exchange(mapped()), scan) == []
    assert codes(an_exchange(mapped(), options=by_spark, there=CONNECT), scan) == []
    # Spark moves rows that no function gets, and it computes the keys of others.
    assert codes(an_exchange(options=by_spark), scan) == []
    assert codes(an_exchange(has_reduce=True, options=by_spark), scan) == ["read-in-workers"]
    computed = an_input(has_computed_keys=True)
    assert codes(an_exchange(computed, has_reduce=True, options=by_spark), scan) == []


def test_fewer_partitions_or_producers_than_slots():
    assert codes(an_exchange(mapped(), options={"num_partitions": 3})) == ["more-partitions"]
    assert codes(an_exchange(mapped(), options={"num_partitions": 5})) == []
    assert codes(an_exchange(mapped(), options={"num_partitions": 3}, there=CONNECT)) == []
    assert codes(an_exchange(a_source(producers=2))) == ["more-producers"]
    assert codes(an_exchange(a_source(producers=2, splits=2))) == []


def test_a_mode_that_costs_more_than_the_default():
    assert codes(an_exchange(options={"mode": "kept"})) == ["mode-auto"]
    assert codes(an_exchange(mapped(), options={"mode": "kept"})) == []
    assert codes(an_exchange(mapped(), options={"mode": "kept"}, there=CONNECT)) == ["mode-auto"]
    assert codes(an_exchange(mapped(), options={"mode": "spark"})) == ["mode-auto"]
    assert codes(an_exchange(options={"mode": "spark"})) == []


def test_what_is_not_known():
    assert said(an_exchange()).unknown == ()
    (called,) = said(an_exchange(mapped(), has_reduce=True)).unknown
    assert "map and reduce returns" in called
    assert "size of the input" in said(an_exchange(), Table(7, "", None)).unknown[0]
    assert "this is a client of Spark Connect" in said(an_exchange(there=CONNECT)).unknown[0]


# --- As text, HTML and JSON ---


def shown(*facts):
    return Explanation(1, tuple(said(one) for one in facts), (), {"headgate": "0"})


def test_the_text_has_short_lines_and_all_sentences():
    hostile = mapped(map_input=pa.schema([("<b>&" * 60, pa.int8())]))
    explanation = shown(an_exchange(hostile), an_exchange(a_source()))
    lines = str(explanation).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "headgate exchange 3fa1 (1 of 2)"
    found = " ".join(" ".join(lines).split())
    for one in explanation.exchanges:
        for sentence in (one.why, one.partitions.why, one.memory.why, *(c.why for c in one.checks)):
            assert sentence in found


def labels(facts):
    return [label for label, _ in rows_of(said(facts))]


def test_a_reason_is_shown_once():
    listed = an_exchange(an_input(), an_input())
    for one in (listed, an_exchange(mapped())):
        assert [other.why for other in said(one).others] == [said(one).why]
        assert labels(one).count("not") == 0
    assert labels(an_exchange()).count("not") == 1


def test_the_sizes_that_decide_are_named():
    auto = AutoPartitions(3 * MIB, "advisory_bytes")
    options = {"num_partitions": "auto"}
    partitions = said(an_exchange(mapped(), options=options, auto=auto)).partitions
    assert partitions.number == 4
    assert "each of 16 subpartitions" in partitions.why
    assert "until a call of reduce has 3m (advisory_bytes)" in partitions.why
    apart = said(an_exchange(mapped(), options=options, auto=AutoPartitions(0, "a conf", 8)))
    assert (
        "each of 2 subpartitions, each a call of reduce of its own (a conf)" in apart.partitions.why
    )
    by_spark = said(an_exchange(an_input(), options=options, auto=auto)).partitions
    assert by_spark.number is None
    assert "adaptive" in by_spark.why


def test_an_input_that_stays_is_not_copied_into_pages():
    stays, whole = (an_input(placement=Placement(kind)) for kind in ("stays", "whole"))
    exchange = said(an_exchange(stays, whole))
    assert exchange.mode == "broadcast"
    assert [copied.step for copied in exchange.copies].count("pages") == 1
    assert [each.placed.partition(":")[0] for each in exchange.inputs] == ["nowhere", "nowhere"]
    assert exchange.disk.bytes == 0
    assert exchange.partitions.number is None


def test_the_html_escapes_all_names():
    name = "<script>alert(1)</script>"
    source = a_source(source=name, placement=Placement("hash", (name,)), splits=None)
    page = shown(an_exchange(source, there=replace(CLUSTER, slots=Slots(4, name))))._repr_html_()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3
    assert "color-scheme:light dark" in page


def test_the_json_has_the_fields():
    explanation = shown(an_exchange(mapped()))
    found = json.loads(explanation.to_json())
    assert found["schema_version"] == 1
    assert found["exchanges"][0]["mode"] == "kept"
    assert found["exchanges"][0]["memory"]["total"] == explanation.exchanges[0].memory.total
    assert found["exchanges"][0]["inputs"][0]["placement"]["columns"] == ["user"]
