"""``explain()``: how the exchanges of a DataFrame's plan will run."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from headgate._kinds import kind_of
from headgate.errors import OptionError
from headgate.spark.confs import is_connect
from headgate.spark.explained.explanation import Explanation
from headgate.spark.plan.sources import is_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Version of the JSON form.
VERSION: Final = 1
_REMEDY: Final = (
    "explain(out), where out = headgate.spark.exchange(df, ...), or a DataFrame made of it"
)


def explain(df: DataFrame) -> Explanation:
    """Say how the exchanges of a DataFrame will run, before anything runs. No Spark job is started.

    If there are several, first the ways of the rows between them, and where they cross between the JVM and
    Python, and why. For each exchange of the plan, in the order in which rows pass them: the mode and why, and why not
    another one; partitions, producers and where their numbers come from; how rows are placed; columns that
    are copied or converted, and why; memory of the workers and bytes on disk, by estimate; checks of the
    application with their numbers; when the same call would take another way; and what would make it
    faster. The rules are those by which the exchange runs.

    Args:
        df: What :func:`exchange` returned, or a DataFrame that was made of it.

    Returns:
        An :class:`Explanation`, which prints as text, is a table in a notebook, and has fields.

    Raises:
        OptionError: No exchange is in the plan of ``df``: it was made without :func:`exchange`, or it was
            written and read again, or checkpointed; or there were 256 newer exchanges since; or ``df`` is
            no DataFrame.

    Example:
        >>> print(explain(exchange(df, by="user", map=parse, schema=df.schema)))
    """
    # Workers import headgate.spark, and need nothing that plans.
    from headgate.spark.explained.explain_exchange import explain_exchange  # noqa: PLC0415
    from headgate.spark.explained.hops import hops_of  # noqa: PLC0415
    from headgate.spark.explained.plan_search import Finder  # noqa: PLC0415
    from headgate.spark.explained.recent_plans import MOST  # noqa: PLC0415
    from headgate.spark.progress.settings import versions  # noqa: PLC0415

    if not is_table(df):
        raise OptionError(
            f"df is {kind_of(df)}, not a DataFrame with an exchange in its plan", remedy=_REMEDY
        )
    session = df.sparkSession
    finder = Finder(session)
    exchanges = finder.of(df)
    if not exchanges:
        old = f"its exchange is older than the newest {MOST}, which are known"
        raise OptionError(
            "explain() finds no exchange in the plan of this DataFrame",
            have=old
            if finder.forgotten
            else "a plan without exchange(); the results of iterate() and of checkpoints have none",
            remedy="call exchange() again" if finder.forgotten else _REMEDY,
        )
    each = tuple(
        explain_exchange(
            exchange.plan,
            exchange.tables,
            exchange.fed_by,
            is_returned=finder.is_returned(exchange.plan.name),
        )
        for exchange in exchanges
    )
    # A client of Spark Connect does not see the inputs.
    hops = () if is_connect(df) else hops_of(exchanges, finder.returned_by(df))
    of_spark = {"spark": str(session.version), "platform": platform.platform()}
    return Explanation(VERSION, each, hops, {**versions(), **of_spark})
