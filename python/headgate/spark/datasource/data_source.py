"""The Python Data Source that Spark finds under the name ``headgate``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import DataSource

from headgate._matches import close_matches
from headgate.errors import NotBuiltError, OptionError
from headgate.source.registry import Registered, source_from_options
from headgate.spark.datasource.conversion import spark_schema
from headgate.spark.schema import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from headgate.source import Source

#: Options of the data source itself, which it does not pass to the source: lower case -> name.
_OURS: Final = {name.lower(): name for name in ("maxPartitions", "maxSplitsPerTrigger")}
_PUSHDOWN: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadgateDataSource(DataSource):
    """Any source for ``spark.read`` and ``spark.readStream``, and files for ``df.write``.

    The option ``source`` selects a built-in source (``parquet``, ``numbers``, ...), a registered
    one, or a class as ``"package.module:Class"``. ``maxPartitions`` limits the number of tasks and
    ``maxSplitsPerTrigger`` the splits of a micro-batch. All other options go to the source.
    """

    #: The caller's sources by name. ``register`` sets them in a subclass.
    registered: ClassVar[Mapping[str, Registered]] = {}
    #: True once Spark has asked for the schema, so that the one of a reader is the source's own. Spark pickles
    #: this object between the two.
    _was_asked: bool = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headgate"

    def schema(self) -> StructType:
        """Return the schema of the source's batches."""
        self._was_asked = True
        return spark_schema(self._source())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded source."""
        from headgate.spark.datasource import batch  # noqa: PLC0415

        kind = batch.FilteringBatchReader if _filters_may_come() else batch.BatchReader
        return kind(self._source_with(schema), schema, batch.max_partitions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query.

        Raises:
            NotBuiltError: this Spark version has no admission control for Python sources.
        """
        _needs_admission_control()
        from headgate.spark.datasource.stream import stream_reader  # noqa: PLC0415

        return stream_reader(self._source_with(schema), schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch job, which commits files in two phases."""
        from headgate.spark.datasource.writer import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of a streaming query, which commits the files of each batch once."""
        from headgate.spark.datasource.writer import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)

    def _source_with(self, schema: StructType) -> Source[Any, Any, Any]:
        """Return the source, with the schema that the caller gave to Spark."""
        source = self._source()
        declared = None if self._was_asked else source.with_schema(arrow_schema_in_utc(schema))
        return declared or source

    def _source(self) -> Source[Any, Any, Any]:
        options = {name: text for name, text in self.options.items() if name.lower() not in _OURS}
        try:
            return source_from_options(options, self.registered)
        except OptionError as error:
            near = close_matches(error.details.get("option", ""), _OURS.values())
            if not near:
                raise
            raise OptionError(
                error.summary,
                asked=error.asked,
                have=f"{error.have}, {', '.join(_OURS.values())}",
                remedy=" · ".join([*error.details.get("close", []), *near]),
            ) from None


def _filters_may_come() -> bool:
    """Return True if the caller of ``reader`` is Spark's process that pushes filters.

    Spark starts that process only if ``spark.sql.python.filterPushdown.enabled`` is true, and a
    data source learns of the setting in no other way.
    """
    module = sys._getframe(2).f_globals  # noqa: SLF001 - the caller of reader()
    return _PUSHDOWN in {module.get("__name__"), getattr(module.get("__spec__"), "name", None)}


def _needs_admission_control() -> None:
    import pyspark  # noqa: PLC0415

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise NotBuiltError(
            "spark.readStream needs Spark 4.2, which tells a Python source where a batch starts",
            have=f"Spark {pyspark.__version__}",
            remedy="Spark 4.2 or newer · spark.read in a loop · headgate.source.read()",
        )
