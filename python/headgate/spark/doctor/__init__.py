"""``doctor``: looks at a cluster before an exchange does, and says what would go wrong and what to do.

Checks are functions of :class:`~headgate.spark.doctor.context.Context`, which has plain values only. See docs/doctor.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import _arguments
from headgate.spark.confs import is_connect
from headgate.spark.connect import connect_error
from headgate.spark.plan.sources import session_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from pyspark.sql import SparkSession

    from headgate.options import Size
    from headgate.spark.doctor.context import Check
    from headgate.spark.doctor.findings import Report
    from headgate.spark.options import ExchangeOptions


def doctor(
    spark: SparkSession,
    *,
    size: Size = "100m",
    seconds: float = 120.0,
    checks: Sequence[Check] = (),
    **options: Unpack[ExchangeOptions],
) -> Report:
    """Examine the driver, the executors and the links between them.

    It runs a Spark task on each executor, which needs no headgate there, and then one that exchanges rows with the others.
    What it cannot find out is a finding, too. It leaves no job, thread, file or socket.

    Args:
        spark: a classic session.
        size: bytes that each pair of executors exchanges, in each direction; 0 leaves the step out.
        seconds: most seconds for all of it, at least 5. Pairs that do not fit are reported as not measured.
        checks: further checks of your own, ``(Context) -> list[Finding]``.
        options: of the exchanges that you plan, as for :func:`headgate.spark.exchange`.

    Returns:
        The findings: ``print(report)``, ``report.to_json()``, ``report.exit_code`` (0 ok, 1 warnings, 2 failures).

    Raises:
        NotBuiltError: the session belongs to Spark Connect.
        OptionError: an argument outside its limits.

    Example:
        >>> from headgate.spark import doctor  # doctest: +SKIP
        >>> doctor(spark).level  # doctest: +SKIP
        'ok'
    """
    from headgate.spark.doctor.checks import CHECKS  # noqa: PLC0415 - loaded when it is used
    from headgate.spark.doctor.examination import Examination  # noqa: PLC0415

    spark = session_of(spark)
    if not isinstance(checks, (list, tuple)) or not all(callable(check) for check in checks):
        raise _arguments.refuse(
            "checks", checks, "is no list of functions", "functions", "checks=[my_check]"
        )
    if is_connect(spark):
        remedy = "python -m headgate doctor --master MASTER, where a classic session can start"
        raise connect_error("doctor()", "session", remedy)
    bytes_each = _arguments.size("size", size, 0)
    limit = _arguments.duration("seconds", seconds, 5)
    return Examination(spark, bytes_each, limit, options, (*CHECKS, *checks)).report()
