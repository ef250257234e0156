"""calls(): a function that waits, called for each row of a DataFrame, by a streaming job that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headgate.stream import CallFunction

#: Options of the job, as well as of the calls.
_OF_JOB: Final = {"parallelism", "workers"}


def calls(
    df: DataFrame,
    function: Callable[..., Any] | CallFunction | type[CallFunction],
    *,
    schema: StructType | pa.Schema | str,
    checkpoint: str,
    **options: Any,
) -> DataFrame:
    """Call a function that waits, such as for a service or a model, for each row, and return the results.

    If the program ends before all rows are done, the same line goes on where it stopped: results of the last checkpoint
    and before are not called for again. Once all are done, it returns them without a call::

        vectors = calls(docs, embed, schema="doc long, vector array<float>", in_flight=100, rate="500/s", checkpoint="/jobs/embed")

    It is :func:`headgate.stream.stream` of the DataFrame, ``map_async()`` and ``to_dataframe()``, in one line.

    Args:
        df: a DataFrame of a classic session, with rows that end. It must be the same one in each run.
        function: what is called, with a row as a dict, as :meth:`headgate.stream.DataStream.map_async` says.
        schema: of the results: a DDL string, a ``StructType`` or a ``pyarrow.Schema``.
        checkpoint: a folder for this line alone, which the driver and all executors share.
        **options: those of ``map_async()``, such as ``in_flight``, ``rate``, ``retries``, ``on_error`` and ``memo``; results come
            as they are done unless ``ordered`` says otherwise. And those of :meth:`headgate.stream.StreamingJob.start`, such as
            ``interval``. ``parallelism`` is that of the whole job, by default the number of ``workers``, and 1 without either:
            ``in_flight`` calls for each of its tasks.

    Returns:
        A DataFrame of the results, in no order.

    Raises:
        OptionError: an option is unknown or has a value that it does not take.
        UnsupportedTypeError: a column has a type that cannot be sent.
        CheckpointError: the folder is of another job, or the DataFrame is not the one that was read before.
        NotBuiltError: the DataFrame belongs to Spark Connect.
        HeadgateError: a call failed for good, or the job did; all other errors of ``map_async()`` and ``to_dataframe()``.
    """
    # Workers import this module, and need nothing that plans.
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    from headgate.spark.plan.request import struct_of  # noqa: PLC0415
    from headgate.spark.schema import arrow_schema  # noqa: PLC0415
    from headgate.stream import DataStream, StreamingJob, stream  # noqa: PLC0415
    from headgate.stream.api.frames import option_names, refuse_unknown  # noqa: PLC0415

    of_calls, of_job = (
        set(option_names(method)) - {"function", "schema", "spark", "checkpoint"}
        for method in (DataStream.map_async, StreamingJob.start)
    )
    names = sorted(of_calls | of_job)
    refuse_unknown("calls()", options, names, "those of map_async() and of start()")
    if options.get("on_error") == "side_output":
        raise OptionError(
            "calls() returns the results alone, and the rows with errors would be lost",
            asked="on_error='side_output'",
            have='"fail" or "null"',
            remedy='on_error="null" · map_async() of stream(df), a sink of its side_output("errors"), and to_dataframe()',
        )
    rows = stream(df)
    if not isinstance(schema, pa.Schema):
        # In UTC, as state and checkpoints have these types.
        schema = arrow_schema(struct_of(schema, "schema"), "UTC")
    called = {name: value for name, value in options.items() if name in of_calls - _OF_JOB}
    results = rows.map_async(
        function, schema=schema, **{"ordered": False, "name": "calls", **called}
    )
    rest = {name: value for name, value in options.items() if name not in called}
    return results.to_dataframe(df.sparkSession, checkpoint=checkpoint, **rest)
