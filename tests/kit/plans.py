"""Plans of exchanges for the tests of ``explain()``, without Spark."""

from dataclasses import replace

import pyarrow as pa

from headgate import _options
from headgate.spark.explained.explain_exchange import explain_exchange
from headgate.spark.explained.tables import Table
from headgate.spark.plan.facts import CallFacts, InputFacts, Placement, SessionFacts
from headgate.spark.plan.rules import choose
from headgate.spark.slots import Slots

ROWS = pa.schema([("user", pa.string()), ("n", pa.int64())])
SLOTS = Slots(4, "2 executors x 2 cores", each=2)
LOCAL = SessionFacts(is_one_process=True, shares_files=True, slots=SLOTS)
CLUSTER = SessionFacts(slots=SLOTS)
CONNECT = SessionFacts(on_connect=True, slots=SLOTS)
TABLE = Table(7, "those of the DataFrame", 5000)


def an_input(**changes):
    """Return the facts of a DataFrame whose rows columns place."""
    plain = InputFacts(
        source="",
        placement=Placement("hash", ("user",)),
        sort_within=(),
        has_map=False,
        has_computed_keys=False,
        map_input=ROWS,
        read=None,
        sent=ROWS,
    )
    return replace(plain, **changes)


def a_source(**changes):
    """Return the facts of a source with 30 splits."""
    return an_input(**{"source": "files", "read": ROWS, "producers": 16, "splits": 30, **changes})


def a_call(*inputs, options=None, confs=None, environ=None, **changes):
    """Return the facts of a call."""
    inputs = inputs or (an_input(),)
    options = _options.resolve("exchange", options or {}, confs or {}, environ or {})
    plain = CallFacts(
        inputs=inputs,
        has_reduce=False,
        result=ROWS,
        options=options,
        is_listed=len(inputs) > 1,
        mode=options["mode"],
    )
    return replace(plain, **changes)


def an_exchange(*inputs, there=CLUSTER, name="3fa1", **call):
    """Return the plan of an exchange, in the mode that the rules choose."""
    return replace(choose(a_call(*inputs, **call), there), name=name)


def said(plan, *tables, master="yarn", conf=None):
    """Return the explanation of an exchange; its DataFrames have seven partitions by default."""
    found = tables or tuple(None if one.source else TABLE for one in plan.call.inputs)
    session = replace(plan.session, master=master, conf=conf or {})
    return explain_exchange(replace(plan, session=session), found, [()] * len(found))
