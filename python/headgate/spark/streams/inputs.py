"""A DataFrame as the source of a streaming job: read by the workers, or written once below the checkpoint.

What a job has read of its input is part of its checkpoints, so the input must stay what it was at the first start. Its
facts are written below the checkpoint then, and compared at each further start.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow.fs import FileSelector

from headgate._option_table import STREAM
from headgate.errors import CheckpointError, OptionError
from headgate.sink import FileSink
from headgate.source import Boundedness, FileSource, Source
from headgate.source.files.listing import IGNORED, KnownFiles, listed
from headgate.spark.confs import is_connect
from headgate.spark.connect import connect_error
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.schema import arrow_schema
from headgate.spark.streams.records import FOLDER, Record
from headgate.stream.state.locations import absolute, below, filesystem_of, safe_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.source.delta import DeltaSource

_LOG: Final = logging.getLogger("headgate.spark")
_READ: Final = "%s: the workers read the DataFrame, %s"
_WRITTEN: Final = "%s: the DataFrame is written once, into %s: %s"
_KEPT: Final = "%s: the DataFrame was written before, into %s, and is read there"
_OTHER: Final = "%s: the job goes on with the DataFrame, as restore='latest' says, though %s"
#: Leaves of plans whose rows the program itself has, and nodes above them that are as cheap to run again.
_OWN_ROWS: Final = {"LocalRelation", "LogicalRDD", "OneRowRelation", "Range"}
_CHEAP: Final = {"Filter", "Project", "SubqueryAlias", "View"}
#: Spark's numbers of expressions, and the number of a range's partitions, which differ from run to run.
_NUMBERS: Final = re.compile(r"#-?\d+L?|, splits=\w+(\(\d+\))?")
#: Options of rows as text: all of a time, in any session.
_JSON: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Fact -> what has changed if it differs.
_CHANGES: Final = {
    "columns": "it has other columns",
    "plan": "its plan is another one",
    "rows": "its rows are others",
    "table": "it is another version of its table",
    "files": "its files are others",
}


class DataFrameSource(Source[pa.RecordBatch, Any, Any]):
    """Stands for a DataFrame in a graph, until a job starts and its source is known.

    Args:
        df: of a classic session, with rows that end.

    Raises:
        NotBuiltError: it belongs to Spark Connect.
        OptionError: it is streaming.
        UnsupportedTypeError: a column has a type that cannot be sent.
    """

    def __init__(self, df: DataFrame) -> None:
        if is_connect(df):
            raise connect_error(
                "stream(df)", "DataFrame", "a classic session · stream(FileSource(...))"
            )
        if df.isStreaming:
            raise OptionError(
                "the DataFrame is streaming, and stream(df) takes one whose rows end",
                asked="stream(df)",
                remedy=f"spark.read in place of spark.readStream · a source of Headgate: {STREAM}",
            )
        self._df: DataFrame | None = df
        # State and checkpoints have these types, so they may not depend on the session's zone.
        self._schema = arrow_schema(df.schema, "UTC")

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED``."""
        return Boundedness.BOUNDED

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Spark gives them to Python, but with timestamps in UTC."""
        return self._schema

    @property
    def name(self) -> str:
        """``"DataFrame"``."""
        return "DataFrame"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the DataFrame: a graph keeps this source, and workers have the one that it stands for."""
        return {"_df": None, "_schema": self._schema}

    def source_for(
        self, uid: str, checkpoint: str | None, *, restore: str | None
    ) -> Source[pa.RecordBatch, Any, Any]:
        """Return the source that a job reads, and write down what it depends on, or the rows themselves.

        Args:
            uid: of the source.
            checkpoint: folder of the job's checkpoints.
            restore: option of the job: with ``"latest"`` it goes on although the DataFrame may be another one.

        Raises:
            OptionError: the rows have to be written, and there is no folder.
            CheckpointError: the job has read another input before.
        """
        df = self._df
        assert df is not None  # noqa: S101 - only workers lack it, and they start no job
        scan: FileSource | DeltaSource | None = None
        try:
            scan, why = source_of(df), ""
        except Unsure as reason:
            why = reason.sentence
        folder = None
        if checkpoint is not None:
            folder = _settled(df, scan, why, uid, absolute(checkpoint), restore)
        elif scan is None:
            raise OptionError(
                "the rows of this DataFrame are written once, below the checkpoint, and there is none",
                asked="start(checkpoint=None)",
                have=f"workers cannot read it: {why}",
                remedy='start(checkpoint="folder")',
            )
        if folder is not None:
            return _written(folder, self._schema)
        assert scan is not None  # noqa: S101 - its files were compared
        _LOG.info(_READ, uid, scan.name)
        return scan

    def _unread(self, *_: Any) -> Any:
        raise NotImplementedError("a job reads the source that this one stands for")

    create_enumerator = restore_enumerator = create_reader = _unread  # type: ignore[assignment]
    split_serializer = enumerator_checkpoint_serializer = property(_unread)


def _settled(
    df: DataFrame,
    scan: FileSource | DeltaSource | None,
    why: str,
    uid: str,
    checkpoint: str,
    restore: str | None,
) -> str | None:
    """Compare a DataFrame with that of the first start; at the first start, write it down, and its rows if need be.

    Args:
        df: the DataFrame.
        scan: the source that reads its files; None if workers cannot.
        why: they cannot.
        uid: of the source in the graph.
        checkpoint: folder of the job's checkpoints.
        restore: option of the job.

    Returns:
        The folder that has the rows; None if the workers read the files of the DataFrame.

    Raises:
        CheckpointError: the job has read another DataFrame before.
    """
    name = f"input-{safe_name(uid)}"
    record, folder = Record(checkpoint, name), below(checkpoint, f"{FOLDER}/{name}")
    before = record.read()
    if before is not None:
        is_written = before["is_written"]
        facts = _facts(df, None if is_written else scan)
        changes = {fact for fact in _CHANGES if before.get(fact) != facts.get(fact)}
        may_differ = restore == "latest" and changes <= _may_differ(is_written=is_written)
        if not changes or may_differ:
            if changes:
                _LOG.warning(_OTHER, uid, " and ".join(_CHANGES[fact] for fact in sorted(changes)))
            if is_written:
                _LOG.info(_KEPT, uid, folder)
            return folder if is_written else None
        if record.is_needed():
            raise _changed(uid, checkpoint, changes, is_written=is_written, why=why)
    facts = _facts(df, scan)
    if scan is None:
        from headgate.spark.write import write  # noqa: PLC0415 - loads what plans an exchange

        _LOG.info(_WRITTEN, uid, folder, why)
        write(df, FileSink(folder, format="arrow", mode="overwrite"))
    # The rows count from here on: without the record the next start writes them again.
    record.write({"is_written": scan is None, **facts})
    return folder if scan is None else None


def _written(folder: str, schema: pa.Schema) -> FileSource:
    """Return the source of the rows that were written into a folder, whatever signs its name has."""
    filesystem, root = filesystem_of(folder)
    infos = filesystem.get_file_info(FileSelector(root))
    paths = [info.path for info in infos if info.is_file and not info.base_name.startswith(IGNORED)]
    return FileSource(KnownFiles(filesystem, listed(filesystem, paths)), "arrow", schema=schema)


def _may_differ(*, is_written: bool) -> set[str]:
    """Return the facts that may differ if the user says that the job is the same."""
    return {"files", "plan", "rows"} if is_written else {"plan"}


def _facts(df: DataFrame, scan: FileSource | DeltaSource | None) -> dict[str, Any]:
    """Return what tells a DataFrame from a later one: its columns, its plan, and what its rows are read from.

    Args:
        df: the DataFrame.
        scan: the source that reads its files; None if its rows are written, with whatever files it has.
    """
    plan: Any = df._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
    text = _NUMBERS.sub("", str(plan.toString()))
    facts: dict[str, Any] = {
        "columns": df.schema.json(),
        "plan": hashlib.sha256(text.encode()).hexdigest(),
    }
    if scan is None:
        facts["files"] = _input_files(df)
        if not facts["files"] and _has_own_rows(plan):
            facts["rows"] = _digest(df)
    elif isinstance(scan, FileSource):
        facts["files"] = [[file.path, file.size, file.modified] for file in scan.files()]
    else:
        facts["table"] = [scan.pinned.table, scan.pinned.version]
    return facts


def _input_files(df: DataFrame) -> list[list[Any]]:
    """Return path, size and time of the files from which Spark reads a DataFrame, as far as it knows them."""
    session: Any = df.sparkSession
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no public way
    files = []
    for uri in sorted(df.inputFiles()):
        path = session._jvm.org.apache.hadoop.fs.Path(session._jvm.java.net.URI(uri))  # noqa: SLF001
        status = path.getFileSystem(conf).getFileStatus(path)
        files.append([uri, int(status.getLen()), int(status.getModificationTime())])
    return files


def _has_own_rows(plan: Any) -> bool:
    """Return True if the program itself has the rows of a plan, so that they are cheap to compare."""
    while (kind := str(plan.getClass().getSimpleName())) in _CHEAP:
        plan = plan.children().apply(0)
    return kind in _OWN_ROWS


def _digest(df: DataFrame) -> list[Any]:
    """Return the number of rows, and a sum of their hashes, for which their order does not matter."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as all call it; only where Spark is

    if not df.columns:
        return [df.count(), "0"]
    # By position: names may be there twice. A hash of maps is refused, their text has one.
    columns = F.struct(*(df[at].alias(str(at)) for at in range(len(df.columns))))
    row = F.to_json(columns, _JSON)
    hashes = F.xxhash64(row).cast("decimal(20,0)")
    rows, total = df.agg(F.count("*"), F.sum(hashes)).head()  # type: ignore[misc]
    return [rows, str(total or 0)]


def _changed(
    uid: str, checkpoint: str, changes: set[str], *, is_written: bool, why: str
) -> CheckpointError:
    """Return the error for a DataFrame that is another one than at the first start of its job."""
    differences = [_CHANGES[name] for name in _CHANGES if name in changes]
    if why and not is_written:
        differences = [f"workers could read it, and cannot any more: {why}"]
    remedies = ["the DataFrame as it was", "another folder for checkpoint=, which begins anew"]
    if "table" in changes:
        remedies[0] = '.option("versionAsOf", ...) for the version as it was'
    if changes <= _may_differ(is_written=is_written):
        rows = "with its rows as they were" if is_written else "if it has the same rows"
        remedies.append(f'restore="latest" to go on {rows}')
    return CheckpointError(
        f"the DataFrame of {uid} is not the one that the job of {checkpoint} has read: {differences[0]}",
        asked=f"checkpoint={checkpoint!r}",
        have=" · ".join(differences),
        remedy=" · ".join(remedies),
    )
