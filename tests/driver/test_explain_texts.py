"""The whole text of ``explain()``: explained.txt has exchanges and what a user reads of them."""

from pathlib import Path

from tests.kit import stored
from tests.kit.plans import CONNECT, LOCAL, TABLE, a_source, an_exchange, an_input, said

from headgate.spark.explained.explanation import Explanation
from headgate.spark.explained.hops import hops_of
from headgate.spark.explained.plan_search import PlannedExchange
from headgate.spark.plan.facts import Followed, Placement

FIRST, SECOND = "a1b2" + 26 * "0", "c3d4" + 26 * "0"


def explained(*plans):
    """Return the text of exchanges, each of which sends the rows of the one before."""
    chain = [PlannedExchange(plan, (TABLE,), ((),)) for plan in plans]
    hops = hops_of(chain, [plans[-1].name]) if len(plans) > 1 else ()
    masters = ("local[4]" if plan.session.is_one_process else "yarn" for plan in plans)
    exchanges = [said(plan, master=master) for plan, master in zip(plans, masters, strict=True)]
    return str(Explanation(1, tuple(exchanges), tuple(hops), {}))


NAMES = {
    "CONNECT": CONNECT,
    "FIRST": FIRST,
    "Followed": Followed,
    "LOCAL": LOCAL,
    "Placement": Placement,
    "SECOND": SECOND,
    "a_source": a_source,
    "an_exchange": an_exchange,
    "an_input": an_input,
    "explained": explained,
}


def test_the_texts_of_explain():
    stored.check(Path(__file__).parent / "explained.txt", lambda call: eval(call, NAMES))
