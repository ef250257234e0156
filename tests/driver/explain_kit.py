"""Facts of exchanges for the tests of ``explain()``, without Spark."""

from dataclasses import replace

import pyarrow as pa

from headgate import _options
from headgate.spark.explained.explained import explained
from headgate.spark.explained.planned import ExchangeFacts, InputFacts, Placement
from headgate.spark.explained.tables import Table
from headgate.spark.plan.rules import Asked, There, choose

ROWS = pa.schema([("user", pa.string()), ("n", pa.int64())])
LOCAL = There(on_connect=False, is_one_process=True, shares_files=True)
CLUSTER = There(on_connect=False, is_one_process=False, shares_files=False)
CONNECT = There(on_connect=True, is_one_process=False, shares_files=False)
TABLE = Table(7, "those of the DataFrame", 5000)


def an_input(**changes):
    """Return the facts of a DataFrame whose rows columns place."""
    plain = InputFacts(
        source="",
        placement=Placement("hash", ("user",)),
        sort_within=(),
        spark_reads="",
        has_map=False,
        has_computed_keys=False,
        given=ROWS,
        read=None,
        sent=ROWS,
        producers=None,
        splits=None,
    )
    return replace(plain, **changes)


def a_source(**changes):
    """Return the facts of a source with 30 splits."""
    return an_input(**{"source": "files", "read": ROWS, "producers": 16, "splits": 30, **changes})


def an_exchange(*inputs, there=CLUSTER, options=None, confs=None, environ=None, **changes):
    """Return the facts of an exchange, in the mode that the rules choose."""
    inputs = inputs or (an_input(),)
    options = _options.resolve("exchange", options or {}, confs or {}, environ or {})
    one = inputs[0]
    by_columns = one.placement.kind == "hash"
    asked = Asked(
        mode=options["mode"],
        mode_from=options.sources["mode"],
        by="[user]",
        is_listed=len(inputs) > 1,
        is_shortest=not one.source and not one.has_map and by_columns,
        is_by_order=one.placement.kind in {"turn", "random", "function"},
        has_map=one.has_map,
        reads_source=bool(one.source),
        spark_places=one.placement.kind in {"hash", "turn", "random"},
    )
    plain = ExchangeFacts(
        name="3fa1",
        asked=asked,
        there=there,
        choice=choose(asked, there),
        partitions=options["num_partitions"] or 4,
        slots=4,
        slots_words="2 executors x 2 cores",
        each=2,
        inputs=inputs,
        has_reduce=False,
        result=ROWS,
        options=options,
        segment_size=options["segment_size"],
    )
    return replace(plain, **changes)


def said(facts, *tables, master="yarn", conf=None):
    """Return the explanation of an exchange; its DataFrames have seven partitions by default."""
    found = tables or tuple(None if one.source else TABLE for one in facts.inputs)
    return explained(facts, found, master, conf or {})
