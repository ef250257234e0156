"""The rows of a stream as a DataFrame: Parquet files below the checkpoint, which a job commits once each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headgate._arguments import path, refuse
from headgate._kinds import kind_of
from headgate._locations import is_uri
from headgate.errors import CheckpointError, StreamError
from headgate.sink import FileSink
from headgate.spark.confs import is_connect
from headgate.spark.connect import connect_error
from headgate.spark.schema import arrow_schema
from headgate.spark.source_schema import spark_schema
from headgate.spark.streams.records import FOLDER, Record
from headgate.spark.write import file_schema
from headgate.stream.job.store import CheckpointStore
from headgate.stream.state.locations import absolute, below

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


#: Of the operator that writes the rows.
NAME: Final = "to_dataframe"
_RESULT: Final = "result"
#: Characters of a path that Hadoop takes for a pattern.
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")


class ResultFolder:
    """The folder of a job's rows.

    Args:
        schema: of the rows.
        session: reads them.
        checkpoint: folder or URI of the job's checkpoints.

    Raises:
        NotBuiltError: the session belongs to Spark Connect.
        OptionError: it is no session.
        StreamError: two columns have one name for Spark.
        UnsupportedTypeError: Spark has no type for a column.
        SchemaMismatchError: there are no columns.

    Attributes:
        sink: writes the rows.
        schema: of the files, with the types that Spark reads, whatever the stream has.
        name: of the operator that does.
    """

    name: Final = NAME

    def __init__(self, schema: pa.Schema, session: SparkSession, checkpoint: str) -> None:
        if is_connect(session):
            raise connect_error("to_dataframe()", "session", "a classic session")
        if type(session).__name__ != "SparkSession":
            raise refuse("spark", session, f"is {kind_of(session)}", "a SparkSession")
        self._session = session
        self._columns = spark_schema(schema)
        file_schema(self._columns)
        _check_names(schema.names, session)
        self._checkpoint = absolute(path("checkpoint", checkpoint))
        self._folder = below(self._checkpoint, f"{FOLDER}/{_RESULT}")
        self.schema = arrow_schema(self._columns, "UTC")
        self.sink = FileSink(self._folder, mode="error")

    def check_columns(self) -> None:
        """Check that earlier rows have the same columns, and write the columns down at the first start.

        Raises:
            CheckpointError: they have others, or the folder cannot be used.
        """
        record = Record(self._checkpoint, _RESULT)
        columns = {field.name: field.dataType.simpleString() for field in self._columns.fields}
        before = record.read()
        if before is not None and before["columns"] != columns and record.is_needed():
            raise CheckpointError(
                f"the rows of the job of {self._checkpoint} have other columns",
                asked=", ".join(f"{name} {kind}" for name, kind in columns.items()),
                have=", ".join(f"{name} {kind}" for name, kind in before["columns"].items()),
                remedy="the columns as before · another folder for checkpoint=, which begins anew",
            )
        if before is None or before["columns"] != columns:
            record.write({"columns": columns})

    def read(self) -> DataFrame:
        """Return the rows of the files that the job has committed.

        Their names begin with that of the job. Others are in folders whose names begin with "_", where Spark does not look.
        """
        begin = f"part-{CheckpointStore(self._checkpoint).job_name()}.{NAME}-"
        storage = self.sink.storage()
        names = (entry.path.rpartition("/")[2] for entry in storage.list(storage.root))
        if not any(name.startswith(begin) for name in names):
            return self._session.createDataFrame([], self._columns)
        folder = self._folder if is_uri(self._folder) else f"file://{self._folder}"
        reader = self._session.read.schema(self._columns).option("pathGlobFilter", f"{begin}*")
        return reader.parquet(_PATTERN.sub(r"\\\1", folder))


def _check_names(names: list[str], session: SparkSession) -> None:
    """Refuse names that are one for Spark.

    Raises:
        StreamError: two columns have the same.
    """
    is_exact = session.conf.get("spark.sql.caseSensitive") == "true"
    earlier: set[Any] = set()
    for name in names:
        key = name if is_exact else name.lower()
        if key in earlier:
            raise StreamError(
                f"to_dataframe() of a stream with two columns that are {name!r} for Spark",
                have=", ".join(names),
                remedy="map() that gives one another name · spark.sql.caseSensitive=true, if only the case differs",
            )
        earlier.add(key)
