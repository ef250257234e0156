"""The Python Data Source that Spark knows as ``headgate``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import DataSource

from headgate._matches import close_matches
from headgate.errors import OptionError
from headgate.source.registry import Registered, source_from_options
from headgate.spark.datasource.conversion import spark_schema

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

#: Options that are ours and no source's.
_OURS: Final = {name.lower(): name for name in ("maxPartitions", "maxSplitsPerTrigger")}
_PUSHDOWN: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadgateDataSource(DataSource):
    """Any source by name, for ``spark.read`` and ``spark.readStream``; files for ``df.write``.

    The option ``source`` names it: one that ships (``parquet``, ``numbers``, ...), one that was
    registered, or a class as ``"package.module:Class"``. Further options are the source's own;
    ``maxPartitions`` bounds the tasks, ``maxSplitsPerTrigger`` a micro-batch.
    """

    #: Sources of the caller, by name; a subclass made by ``register`` has them.
    registered: ClassVar[Mapping[str, Registered]] = {}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headgate"

    def schema(self) -> StructType:
        """Return the schema of the source's batches."""
        return spark_schema(self._source())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded source."""
        from headgate.spark.datasource import batch  # noqa: PLC0415

        kind = batch.FilteringBatchReader if _filters_may_come() else batch.BatchReader
        return kind(self._source(), schema, batch.max_partitions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query.

        Raises:
            NotBuiltError: this version of Spark has no admission control for Python sources.
        """
        _needs_admission_control()
        from headgate.spark.datasource.stream import stream_reader  # noqa: PLC0415

        return stream_reader(self._source(), schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch job: files with a two-phase commit."""
        from headgate.spark.datasource.writer import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of a streaming query: files, each batch once."""
        from headgate.spark.datasource.writer import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)

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
    """Whether Spark's process for pushing filters asks, not the one that only plans.

    Spark refuses a reader that takes filters where ``spark.sql.python.filterPushdown.enabled`` is
    false, and tells a data source nothing else of that setting.
    """
    module = sys._getframe(2).f_globals  # noqa: SLF001 - the caller of reader()
    return _PUSHDOWN in {module.get("__name__"), getattr(module.get("__spec__"), "name", None)}


def _needs_admission_control() -> None:
    import pyspark  # noqa: PLC0415

    from headgate.errors import NotBuiltError  # noqa: PLC0415

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise NotBuiltError(
            "spark.readStream needs Spark 4.2, where a Python source is told where a batch starts",
            have=f"Spark {pyspark.__version__}",
            remedy="Spark 4.2 or newer · spark.read in a loop · headgate.source.read()",
        )
