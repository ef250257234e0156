"""The enumerator of files: lists them and plans splits off its thread, and assigns on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headgate.errors import SourceError
from headgate.source.api import SplitEnumerator, SplitEnumeratorContext
from headgate.source.files.listing import changed, has_changed
from headgate.source.files.order import Order, key_of
from headgate.source.files.pending import PendingSplits
from headgate.source.files.split import FileCheckpoint, FileSplit, ListedFile

#: Files that one asynchronous call plans: enough for the cost of a call, few enough that the
#: first splits come soon.
_FILES_AT_ONCE: Final = 16
#: Splits per reader of small inputs, so that all readers end at about the same time.
_SPLITS_PER_READER: Final = 8


@dataclass(frozen=True, slots=True)
class FileWork:
    """Work that may block, and so runs outside the enumerator's thread.

    Attributes:
        list: returns the files.
        plan: returns the splits of files; its second argument is the size of a split, in bytes,
            at which there are enough splits for all readers.
        interval: seconds between two listings; None to list once.
        order: of the splits; None for ``"name"`` if the readers make watermarks, else ``"size"``.
        lists_again: True to list at each start, also after a restore.
    """

    list: Callable[[], Sequence[ListedFile]]
    plan: Callable[[Sequence[ListedFile], float], Sequence[FileSplit]]
    interval: float | None
    order: Order | None = None
    lists_again: bool = False


class FileEnumerator(SplitEnumerator[FileSplit, FileCheckpoint]):
    """Assigns the splits of files in their order; by size those on the reader's host come first.

    A request that comes before there are splits waits for them. By name or time of modification no split is assigned
    before one of an earlier file: so no reader is ahead of the rows that another one has still to ask for.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[FileSplit],
        checkpoint: FileCheckpoint,
        work: FileWork,
    ) -> None:
        if work.lists_again and checkpoint.made and not checkpoint.known:
            raise SourceError(
                "the checkpoint does not say which files were read, so the new ones cannot be told",
                have="a checkpoint of an older version of headgate",
                remedy="another checkpoint folder, which reads all files",
            )
        self._context, self._work = context, work
        self._listed, self._num_splits = checkpoint.listed and not work.lists_again, checkpoint.made
        order = work.order or ("name" if context.has_watermarks else "size")
        self._key = key_of(order)
        self._pending = PendingSplits(checkpoint.pending, order)
        #: In the order of their splits.
        self._unplanned = {file.path: file for file in sorted(checkpoint.unplanned, key=self._key)}
        self._files = {file.path: file for file in checkpoint.known}
        self._waiting: dict[int, str | None] = {}

    def start(self) -> None:
        """Plan the files that a checkpoint left, and list the paths."""
        self._plan(list(self._unplanned.values()))
        if self._work.interval is not None:
            self._context.call_async(self._work.list, self._on_listed, 0.0, self._work.interval)
        elif not self._listed:
            self._context.call_async(self._work.list, self._on_listed)

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Answer now, or when there are splits."""
        self._waiting[subtask_id] = requester_hostname
        self._answer()

    def add_splits_back(self, splits: Sequence[FileSplit], subtask_id: int) -> None:
        """Keep the splits of a lost reader for the next request."""
        self._waiting.pop(subtask_id, None)
        self._pending.add(splits)
        self._answer()

    def add_reader(self, subtask_id: int) -> None:
        """Do nothing until the reader requests a split."""

    def snapshot_state(self, checkpoint_id: int) -> FileCheckpoint:  # noqa: ARG002 - unused
        """Return the splits and files that are not assigned."""
        unplanned = tuple(self._unplanned.values())
        files = tuple(self._files[path] for path in sorted(self._files))
        return FileCheckpoint(self._listed, self._num_splits, self._pending.all(), unplanned, files)

    @property
    def total_splits(self) -> int | None:
        """The number of splits, once all files are planned; None with a discovery interval."""
        return self._num_splits if self._is_complete else None

    def close(self) -> None:
        """Drop the waiting requests."""
        self._waiting.clear()

    @property
    def _is_complete(self) -> bool:
        return self._listed and not self._unplanned and self._work.interval is None

    def _on_listed(self, files: Sequence[ListedFile] | None, error: BaseException | None) -> None:
        if error is not None or files is None:
            raise error or RuntimeError("a listing without result")
        for file in files:
            then = self._files.get(file.path, file)
            if has_changed(then, file):
                raise changed(then, file)
        new = sorted((file for file in files if file.path not in self._files), key=self._key)
        self._listed = True
        self._files.update((file.path, file) for file in new)
        self._unplanned.update((file.path, file) for file in new)
        self._plan(new)
        self._answer()

    def _plan(self, files: Sequence[ListedFile]) -> None:
        readers = max(1, self._context.current_parallelism)
        share = sum(file.size for file in files) / (readers * _SPLITS_PER_READER)
        for first in range(0, len(files), _FILES_AT_ONCE):
            group = files[first : first + _FILES_AT_ONCE]
            self._context.call_async(
                partial(self._work.plan, group, share), partial(self._on_planned, group)
            )

    def _on_planned(
        self,
        files: Sequence[ListedFile],
        splits: Sequence[FileSplit] | None,
        error: BaseException | None,
    ) -> None:
        if error is not None or splits is None:
            raise error or RuntimeError("a plan without result")
        for file in files:
            del self._unplanned[file.path]
        self._num_splits += len(splits)
        self._pending.add(splits)
        self._answer()

    def _answer(self) -> None:
        """Answer the waiting requests in order, as far as there are splits."""
        for subtask_id, host in list(self._waiting.items()):
            if subtask_id not in self._context.registered_readers:
                del self._waiting[subtask_id]
                continue
            split = self._pending.take(host, next(iter(self._unplanned.values()), None))
            if split is not None:
                del self._waiting[subtask_id]
                self._context.assign_split(split, subtask_id)
            elif self._is_complete:
                del self._waiting[subtask_id]
                self._context.signal_no_more_splits(subtask_id)
