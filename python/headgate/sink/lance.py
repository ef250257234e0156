"""A sink that appends rows to a Lance dataset exactly once. Decision: ADR 0064."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._arguments import size
from headgate._changes import CHANGE_TYPE, is_changing
from headgate._error import masked
from headgate._locations import MaskedPath
from headgate._sealed import seal, unseal
from headgate.errors import ClosedError, PackageNotFound, SinkError
from headgate.sink.api import (
    CommitterContext,
    Delivery,
    Sink,
    SinkCommitter,
    SinkWriter,
    WriterContext,
)
from headgate.sink.file_writer import SinkCast
from headgate.sink.staging import check_order, check_origins, refuse_repeats

if find_spec("lance") is None:
    raise PackageNotFound(
        "headgate.sink.lance needs pylance, which is not installed",
        asked="import headgate.sink.lance",
        remedy='pip install "headgate[lance]" · pip install pylance',
    )

if TYPE_CHECKING:
    from collections.abc import Collection

#: Attempts of a commit while other programs change the dataset.
_ATTEMPTS: Final = 50
#: The places in the code of pylance that its texts end with.
_PLACE: Final = re.compile(r"(,? \S+\.rs:\d+:\d+)+$")
#: Exceptions of pylance: those of files, wrong values, and failed tasks of its runtime.
_FAULTS: Final = (OSError, ValueError, RuntimeError)


@dataclass(frozen=True, slots=True)
class LanceSink(Sink):
    """Appends to a Lance dataset: one version of the dataset per checkpoint, with all of its rows.

    Tasks write files of Lance into the dataset's folder. No reader sees them before the committer has listed them in the dataset's
    manifest, together with the number of the checkpoint, which is in the metadata of the schema. So a commit that is repeated
    finds itself done, and of two committers one fails.

    Args:
        path: the dataset's folder: a local path or a URI that pylance takes.
        schema: the schema of a dataset that does not exist yet; an existing one keeps its own.
        file_bytes: size in memory of the rows of a file, such as ``"64m"``. So many bytes of rows wait in each task.
        storage_options: options of pylance for object stores.

    Raises:
        OptionError: the path is no path, or ``file_bytes`` is no size.
    """

    path: str
    schema: pa.Schema | None = field(default=None, kw_only=True)
    file_bytes: int | str = field(default="64m", kw_only=True)
    storage_options: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Check the path and the size."""
        object.__setattr__(self, "path", MaskedPath.of(self.path, None))
        object.__setattr__(self, "file_bytes", size("file_bytes", self.file_bytes, 1))

    @property
    def name(self) -> str:
        """The dataset's address."""
        return f"LanceSink({masked(self.path)})"

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse changes, unless the dataset is to have their column.

        Raises:
            SinkError: the rows are changes.
        """
        if is_changing(schema) and not (self.schema and is_changing(self.schema)):
            raise SinkError(
                f"rows with a column {CHANGE_TYPE} are changes, and {self.name} appends",
                remedy="map() that renames the column appends them · DeltaSink(path, keys=...) applies them",
            )

    @property
    def delivery(self) -> Delivery:
        """``"exactly_once"``."""
        return "exactly_once"

    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> LanceWriter:
        """Return a writer, which casts rows to the schema of the dataset.

        Raises:
            SinkError: there is no dataset; the committer makes it when it starts.
        """
        del schema
        return LanceWriter(self, context)

    def create_committer(self, context: CommitterContext) -> LanceCommitter:
        """Return the committer of a job."""
        return LanceCommitter(self, context.job)

    def dataset(self) -> Any:
        """Return the ``lance.LanceDataset`` as it is now.

        Raises:
            SinkError: there is none, or it cannot be read.
        """
        import lance  # noqa: PLC0415 - optional

        try:
            return lance.dataset(self.path, storage_options=self.options)
        except _FAULTS as error:
            raise SinkError(
                f"{self.path} cannot be read as a Lance dataset: {_cause(error)}",
                remedy="LanceSink(path, schema=...) makes it when the job starts",
                details={"path": self.path},
            ) from error

    def make(self) -> None:
        """Make the dataset if it does not exist and there is a schema.

        Raises:
            SinkError: it cannot be made.
        """
        import lance  # noqa: PLC0415 - optional

        if self.schema is None:
            return
        with contextlib.suppress(SinkError):
            self.dataset()
            return
        try:
            empty = self.schema.empty_table()
            lance.write_dataset(empty, self.path, mode="create", storage_options=self.options)
        except _FAULTS as error:
            text = f"no Lance dataset can be made at {self.path}: {_cause(error)}"
            raise SinkError(text, details={"path": self.path}) from error

    @property
    def options(self) -> dict[str, str] | None:
        """The options of pylance."""
        return None if self.storage_options is None else dict(self.storage_options)


class LanceWriter(SinkWriter):
    """Writes the rows of one task to files that no manifest lists yet.

    Args:
        sink: the sink.
        context: the identity of the writer.
    """

    def __init__(self, sink: LanceSink, context: WriterContext) -> None:
        self._sink, self._context = sink, context
        self._dataset = sink.dataset()
        self._schema: pa.Schema = self._dataset.schema.remove_metadata()
        self._cast = SinkCast(self._schema)
        self._number = context.first_checkpoint
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        #: The files as pylance describes them, for the manifest.
        self._fragments: list[dict[str, Any]] = []
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; see :meth:`SinkWriter.write`."""
        self._check_open()
        batch = self._cast(batch)
        self._rows.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= int(self._sink.file_bytes):
            self._write_file()

    def prepare_commit(self, checkpoint_id: int) -> bytes | None:
        """Write the rest of the rows; see :meth:`SinkWriter.prepare_commit`."""
        self._check_open()
        check_order(checkpoint_id, self._number)
        self._write_file()
        number, self._number = self._number, checkpoint_id + 1
        fragments, self._fragments = self._fragments, []
        fields = {"job": self._context.job, "number": number, "fragments": fragments}
        return seal(fields).encode() if fragments else None

    def abort(self) -> None:
        """Remove the files that are not prepared, if that is possible."""
        from lance.file import LanceFileSession  # noqa: PLC0415 - optional

        fragments, self._fragments, self._rows, self._bytes = self._fragments, [], [], 0
        # An error here must not hide the one that led to the abort.
        with contextlib.suppress(*_FAULTS):
            if fragments:
                files = LanceFileSession(self._sink.path, self._sink.options)
                for path in _paths(fragments):
                    files.delete_file(path)

    def close(self) -> None:
        """Remove the files that are not prepared."""
        self.abort()
        self._is_closed = True

    def _write_file(self) -> None:
        from lance.fragment import write_fragments  # noqa: PLC0415 - optional

        rows = pa.Table.from_batches(self._rows, self._schema)
        self._rows, self._bytes = [], 0
        if not rows.num_rows:
            return
        try:
            written = write_fragments(rows, self._dataset, mode="append")
        except (*_FAULTS, pa.ArrowException) as error:
            raise SinkError(f"cannot write to {self._sink.path}: {_cause(error)}") from error
        self._fragments += [fragment.to_json() for fragment in written]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the sink's writer is closed")


class LanceCommitter(SinkCommitter):
    """Lists the files of a checkpoint in the manifest, with the checkpoint's number.

    Args:
        sink: the sink.
        job: the job's name; ``headgate.`` and this name are a key of the metadata of the dataset's schema.
    """

    def __init__(self, sink: LanceSink, job: str) -> None:
        self._sink, self._job = sink, job
        self._key = f"headgate.{job}"

    def start(self, restored_checkpoint: int | None) -> None:
        """Make the dataset; see :meth:`SinkCommitter.start`.

        Raises:
            SinkError: there is no dataset and no schema, or it has a later checkpoint of the job.
        """
        self._sink.make()
        committed = self._committed(self._sink.dataset())
        refuse_repeats(self._sink.path, self._job, committed, restored_checkpoint)

    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> None:
        """Append the files; see :meth:`SinkCommitter.commit`."""
        staged = list(map(_unsealed, committables))
        origins = [(entry["job"], entry["number"]) for entry in staged]
        check_origins(origins, self._job, checkpoint_id)
        for _ in range(_ATTEMPTS):
            dataset = self._sink.dataset()
            committed = self._committed(dataset)
            if committed is not None and committed >= checkpoint_id:
                return
            # A task that has not heard of a commit passes its files again with the next checkpoint.
            new = [
                fragment
                for entry in staged
                if committed is None or entry["number"] > committed
                for fragment in entry["fragments"]
            ]
            if not new or self._is_appended(dataset, new, checkpoint_id):
                return
        raise SinkError(
            f"others have changed {self._sink.path} in each of {_ATTEMPTS} attempts of a commit",
            asked=f"checkpoint {checkpoint_id} of job {self._job}",
            remedy="commit it again: its rows come once",
        )

    def abort_unknown(self, committables: Collection[bytes], before: str | None = None) -> None:
        """Do nothing: ``cleanup_old_versions()`` of Lance removes files that no version lists."""

    def _committed(self, dataset: Any) -> int | None:
        """Return the number of the last checkpoint that a dataset has of the job."""
        number = (dataset.schema.metadata or {}).get(self._key.encode())
        return None if number is None else int(number)

    def _is_appended(self, dataset: Any, new: list[dict[str, Any]], checkpoint_id: int) -> bool:
        """Append files; return False if the dataset has changed meanwhile, so that nothing was done.

        Raises:
            SinkError: the commit failed, or a file is missing or has changed.
        """
        from lance import LanceDataset, LanceOperation  # noqa: PLC0415 - optional
        from lance.commit import CommitConflictError  # noqa: PLC0415
        from lance.dataset import Transaction  # noqa: PLC0415
        from lance.fragment import FragmentMetadata  # noqa: PLC0415

        self._check_files(new)
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        fragments += [FragmentMetadata.from_json(json.dumps(fragment)) for fragment in new]
        schema = self._marked(dataset.lance_schema, checkpoint_id)
        # Two appends never conflict; two merges always do, and one can change the metadata as well.
        merge = LanceOperation.Merge(fragments, schema, preserves_nullability=True)
        about = {"headgate.job": self._job, "headgate.checkpoint": str(checkpoint_id)}
        transaction = Transaction(dataset.version, merge, transaction_properties=about)
        try:
            LanceDataset.commit(
                dataset, transaction, storage_options=self._sink.options, max_retries=0
            )
        except CommitConflictError as error:
            if error.retryable:
                return False
            raise self._failure(checkpoint_id, error) from error
        except _FAULTS as error:
            raise self._failure(checkpoint_id, error) from error
        return True

    def _marked(self, schema: Any, checkpoint_id: int) -> Any:
        """Return a schema of Lance with the number of the checkpoint; its fields keep their ids.

        Raises:
            SinkError: this pylance makes schemas in another way.
        """
        marked = schema
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            # As it is pickled: from_pyarrow() would number the fields anew.
            make, (metadata, *fields), *_ = schema.__reduce__()
            values = json.loads(metadata) | {self._key: [*str(checkpoint_id).encode()]}
            marked = make(json.dumps(values), *fields)
        plain = marked.to_pyarrow()
        number = (plain.metadata or {}).get(self._key.encode(), b"")
        if number != str(checkpoint_id).encode() or not plain.equals(schema.to_pyarrow()):
            from lance import __version__  # noqa: PLC0415 - optional

            raise SinkError(
                f"pylance {__version__} makes schemas in a way that this Headgate does not know",
                remedy='pip install "pylance>=14,<15"',
            )
        return marked

    def _check_files(self, new: list[dict[str, Any]]) -> None:
        """Check that files are there: a manifest that lists a missing one makes the dataset unreadable."""
        from lance.file import LanceFileSession  # noqa: PLC0415 - optional

        files = LanceFileSession(self._sink.path, self._sink.options)
        for fragment in new:
            expected = f"{fragment['physical_rows']} rows"
            for path in _paths([fragment]):
                try:
                    rows = f"{files.open_reader(path).num_rows()} rows"
                except _FAULTS as error:
                    rows = _cause(error)
                if rows != expected:
                    raise SinkError(
                        f"a file of a checkpoint is missing or has changed: {self._sink.path}/{path}",
                        asked=expected,
                        have=rows,
                        remedy="cleanup_old_versions() without delete_unverified=True from now on · a start from an earlier savepoint",
                        details={"path": path},
                    )

    def _failure(self, checkpoint_id: int, error: Exception) -> SinkError:
        return SinkError(
            f"the commit to {self._sink.path} failed: {_cause(error)}",
            asked=f"checkpoint {checkpoint_id} of job {self._job}",
            remedy="commit it again: its rows come once",
        )


def _paths(fragments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths of the files of fragments, below the dataset's folder."""
    return [f"data/{file['path']}" for fragment in fragments for file in fragment["files"]]


def _unsealed(data: bytes) -> dict[str, Any]:
    """Return the fields of a committable.

    Raises:
        SinkError: it is none, or has changed.
    """
    try:
        fields = unseal(data)
        job, number, fragments = fields["job"], int(fields["number"]), fields["fragments"]
        _paths(fragments)
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(f"this is no committable: {error}", have=repr(data[:200])) from error
    return {"job": job, "number": number, "fragments": fragments}


def _cause(error: BaseException) -> str:
    """Return the first line of what pylance says, without the place in its code."""
    return _PLACE.sub("", str(error).partition("\n")[0])
