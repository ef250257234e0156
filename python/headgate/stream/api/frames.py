"""DataFrames of Spark as the source and the result of streams. All that needs Spark is in Spark's layer."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._arguments import path, takes
from headgate._matches import close_matches
from headgate.errors import OptionError, StreamError
from headgate.source import Boundedness, Source
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.graph.stages import MAX_PARALLELISM
from headgate.stream.operators.sinks import SinkOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark.streams import ResultFolder
    from headgate.stream.graph.nodes import Node


class FrameCalls(StreamCalls[StreamT]):
    """The call of a stream that returns a DataFrame."""

    @takes(checkpoint=path)
    def to_dataframe(self, spark: SparkSession, *, checkpoint: str, **options: Any) -> DataFrame:
        """Run the job on Spark to its end, and return the rows of this stream.

        They are in Parquet files in ``frames/result`` below the checkpoint. The DataFrame reads those that this job has
        committed, as they are now. If the same program runs again, the job goes on where it stopped; if it has ended, its
        rows are returned, and no function is called. Sinks of other streams, such as a side output, are part of the job.

        Args:
            spark: a classic session. Tasks of its application run the job, and it reads the rows.
            checkpoint: folder or URI for checkpoints and for the rows, which all executors and the driver share.
            **options: the other ones of :meth:`StreamingJob.start`, such as ``parallelism``.

        Raises:
            NotBuiltError: the session belongs to Spark Connect.
            OptionError: an option is unknown or outside its limits.
            StreamError: a source never ends, or two columns have one name.
            UnsupportedTypeError: Spark has no type for a column.
            SchemaMismatchError: the stream has no columns.
            CheckpointError: the folder is of another job, or its rows have other columns, or the job's DataFrame has changed.
            HeadgateError: the job failed.
        """
        # Spark's layer, for a call that names a session.
        from headgate.spark.streams import ResultFolder  # noqa: PLC0415

        refuse_unknown("to_dataframe()", options, option_names(StreamingJob.start))
        result = ResultFolder(self.schema, spark, checkpoint)
        job = StreamingJob(self._graph, self._sink_of(result))
        if options.get("until") is None:
            _refuse_endless(job, options)
        result.check_columns()
        job.run(spark=spark, checkpoint=checkpoint, **options)
        return result.read()

    def _sink_of(self, result: ResultFolder) -> Node:
        """Return the operator that writes the rows; the one of an earlier call, if a job that failed runs again."""
        name, nodes = result.name, self._graph.nodes
        make = partial(SinkOperator, result.sink, result.schema)
        node = next((node for node in nodes if node.is_sink and node.uid == name), None)
        if node is None:
            return self._add("sink", name, make, pa.schema([]), is_sink=True)
        has_new_sinks = any(other.is_sink and other.job is self._graph.job for other in nodes)
        if has_new_sinks or node.inputs != self._edges:
            node.job = self._graph.job
        node.make, node.inputs = make, self._edges
        return node


def source_of(rows: Source[Any, Any, Any] | DataFrame) -> Source[Any, Any, Any]:
    """Return a source, or the one that reads a DataFrame of Spark.

    Raises:
        NotBuiltError: the DataFrame belongs to Spark Connect.
        UnsupportedTypeError: the DataFrame has a column of a type that cannot be sent.
    """
    if isinstance(rows, Source):
        return rows
    # Spark's layer, for a DataFrame of Spark.
    from headgate.spark.streams import DataFrameSource  # noqa: PLC0415

    return DataFrameSource(rows)


def option_names(method: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of a method, in their order."""
    return [name for name in signature(method).parameters if name != "self"]


def refuse_unknown(
    call: str, options: Mapping[str, Any], names: Sequence[str], have: str = ""
) -> None:
    """Check the names of options that a call passes on.

    Args:
        call: for the message.
        options: of the call.
        names: of all that there are.
        have: says which there are; empty to list them.

    Raises:
        OptionError: there is no such option.
    """
    for name in options:
        if name not in names:
            near = " · ".join(f"{match}=" for match in close_matches(name, names))
            raise OptionError(
                f"{call} has no option {name!r}",
                asked=f"{name}={options[name]!r}",
                have=have or ", ".join(names),
                remedy=near or f"leave {name} out",
            )


def _refuse_endless(job: StreamingJob, options: Mapping[str, Any]) -> None:
    """Refuse a job that never ends.

    Raises:
        StreamError: one of its sources never ends.
    """
    most = options.get("max_parallelism", MAX_PARALLELISM)
    parallelism = options.get("parallelism")
    for source in job.plan(1 if parallelism is None else parallelism, most).sources.values():
        if source.boundedness is not Boundedness.BOUNDED:
            raise StreamError(
                f"to_dataframe() waits for the end of the job, and {source.name} never ends",
                asked="to_dataframe() without until=",
                remedy='until="now" for what is there now, and for what is new in each further run · '
                "sink(...).start(), whose output is there after each checkpoint",
            )
