"""The folder of a job's checkpoints: a log of complete ones, which only one driver continues.

The log's entries are numbered one by one, and each is created only if there is none of its number. A driver begins with an
entry of its own, its claim, which repeats the one before. So a driver that was taken for dead and is not can neither
complete a checkpoint nor commit its output, once another one has claimed the folder. The state of an attempt is in a
folder that begins with the number of the claim: what newer drivers have written is never deleted by older ones.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from headgate._sealed import seal, unseal
from headgate.errors import CheckpointError
from headgate.stream.job.naming import safe
from headgate.stream.state.locations import absolute, opened

_FORMAT: Final = 1
_LOG: Final = "log"
_TASKS: Final = "tasks"
#: The file of a savepoint that says what is in it.
_METADATA: Final = "_metadata"


class FencedError(CheckpointError):
    """Another driver continues the job: this one must neither complete a checkpoint nor commit output."""


class NotWrittenError(CheckpointError):
    """An entry of the log could not be written, and is not there."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A complete checkpoint or savepoint.

    Attributes:
        checkpoint: its id.
        number: position in the log; None for a savepoint of another job.
        fields: its content; see :mod:`headgate.stream.job.metadata`.
        base: path or URI of the folder that the paths in it are relative to.
    """

    checkpoint: int
    number: int | None
    fields: Mapping[str, Any]
    base: str


class CheckpointStore:
    """The checkpoints of one job.

    On a local file system, or one that is mounted, an entry is created by a hard link, which is atomic. The file systems
    of object stores have no such call in pyarrow: there two drivers at the same moment are not told apart.

    Args:
        path: a folder, or a URI of any file system of pyarrow.
        retained: complete checkpoints to keep.

    Raises:
        CheckpointError: the path cannot be used.
    """

    def __init__(self, path: str, retained: int = 1) -> None:
        try:
            self.filesystem, self.path = opened(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be used for checkpoints: {error}") from error
        self.uri = absolute(path)
        self._retained = retained
        self._is_local = isinstance(self.filesystem, fs.LocalFileSystem)
        #: Names this driver, in its entries and its attempts.
        self._owner = secrets.token_hex(4)
        #: Position of its claim.
        self._claimed = 0
        #: Position of the entry that the job continues from, or has written last; 0 for none.
        self._last = 0

    def claim(self) -> Completed | None:
        """Become the driver that writes here, and return the checkpoint to continue from.

        The claim is an entry of the log, so no other driver can write the one that it would have written next.

        Raises:
            CheckpointError: an entry is damaged, or the folder cannot be written.
        """
        while True:
            last = max(self._numbers(_LOG), default=0)
            found: dict[str, Any] = {}
            if last:
                entry = self._read(last)
                if entry is None:
                    continue  # A newer one has replaced it.
                found = entry
            if self._append(last + 1, found):
                self._claimed = self._last
                self._delete_partial()
                return self._continued(found)

    def _delete_partial(self) -> None:
        """Delete what older drivers left that ended while they wrote an entry, as far as it can be none any more."""
        for name in self._names(_LOG):
            number = name.partition(".")[0]
            if name.endswith(".partial") and number.isdecimal() and int(number) <= self._claimed:
                self._delete(f"{_LOG}/{name}")

    def latest(self) -> Completed | None:
        """Return the newest complete checkpoint, from which the next one follows.

        Raises:
            CheckpointError: it is damaged, or another driver has claimed the folder since.
        """
        last = max(self._numbers(_LOG), default=0)
        if not last:
            raise CheckpointError(f"the log of checkpoints in {self.path} is gone")
        entry = self._read(last)
        if entry is None or entry["owner"] != self._owner:
            raise self._fenced(f"entry {last} of the log is another driver's")
        self._last = last
        return self._continued(entry)

    def complete(self, fields: Mapping[str, Any]) -> None:
        """Write the next entry of the log; from then on the job continues from it.

        Raises:
            FencedError: another driver has written it.
        NotWrittenError: it cannot be written.
        CheckpointError: it cannot be written, and may be there.
        """
        number = self._last + 1
        if not self._append(number, fields):
            raise self._fenced(f"another driver has written entry {number} of the log")

    def attempt(self, number: int) -> str:
        """Return the name of an attempt, which no other driver's has: those of older drivers have smaller claims."""
        return f"{self._claimed:010d}-{self._owner}-{number:06d}"

    def delete_old(self, running: str) -> None:
        """Delete entries that are not retained any more, and the state that no entry needs.

        What a newer driver has written stays.

        Args:
            running: name of the running attempt, whose tasks delete their own files.
        """
        needed: set[str] = {running}
        kept: set[int] = set()
        for number in sorted(self._numbers(_LOG), reverse=True):
            if number > self._last:
                return
            entry = self._read(number) if len(kept) < self._retained else None
            checkpoint = None if entry is None else entry.get("checkpoint")
            if number == self._last or (checkpoint is not None and checkpoint not in kept):
                needed |= {folder.split("/")[1] for folder in _folders(entry or {})}
            else:
                self._delete(f"{_LOG}/{_name(number)}")
            if checkpoint is not None:
                kept.add(checkpoint)
        for attempt in self._names(_TASKS):
            claim = attempt.partition("-")[0]
            is_old = claim.isdecimal() and int(claim) <= self._claimed
            if is_old and attempt not in needed:
                with suppress(OSError):  # it is tried again after the next checkpoint
                    self._delete_attempt(attempt)

    def task_folder(self, attempt: str, stage: int, index: int, uid: str) -> str:
        """Return the folder for the snapshots of an operator's task, relative to this one."""
        return f"{_TASKS}/{attempt}/{stage}-{index}-{safe(uid)}"

    @staticmethod
    def write_savepoint(path: str, fields: Mapping[str, Any], *, replace: bool = False) -> None:
        """Write what a savepoint consists of, when all its files are there.

        Args:
            path: its folder.
            fields: its content.
            replace: True to replace one that is there.

        Raises:
            CheckpointError: there is a savepoint already, or it cannot be written.
        """
        filesystem, root = opened(path)
        name = f"{root}/{_METADATA}"
        try:
            if not replace and filesystem.get_file_info(name).type != fs.FileType.NotFound:
                raise CheckpointError(f"{path} has a savepoint already", remedy="another folder")
            filesystem.create_dir(root, recursive=True)
            partial = f"{name}.{secrets.token_hex(4)}.partial"
            with filesystem.open_output_stream(partial) as stream:
                stream.write(seal({"format": _FORMAT, **fields}).encode())
            filesystem.move(partial, name)
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"the savepoint {path} cannot be written: {error}") from error

    @staticmethod
    def savepoint(path: str, number: int | None = None) -> Completed:
        """Return a savepoint.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        filesystem, root = opened(path)
        try:
            with filesystem.open_input_file(f"{root}/{_METADATA}") as file:
                fields = _checked(unseal(file.read()))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} is no savepoint: {error}",
                remedy="the folder that stop(savepoint=) was given",
            ) from error
        return Completed(fields["checkpoint"], number, fields, absolute(path))

    def _append(self, number: int, fields: Mapping[str, Any]) -> bool:
        """Write an entry of the log, unless there is one of its number or a later one."""
        text = seal({**fields, "format": _FORMAT, "owner": self._owner})
        try:
            if not self._create(_LOG, number, text):
                return False
        except CheckpointError as error:
            # It may be there, such as after a failed sync. Then the next attempt continues from it.
            if self._read(number) is None:
                raise NotWrittenError(error.summary) from error
            raise
        if max(self._numbers(_LOG), default=0) > number:
            # The one of this number is deleted already, because it was replaced.
            self._delete(f"{_LOG}/{_name(number)}")
            return False
        self._last = number
        return True

    def _continued(self, entry: Mapping[str, Any]) -> Completed | None:
        """Return the checkpoint of the newest entry; None before the first."""
        if "checkpoint" not in entry:
            return None
        savepoint = entry.get("savepoint")
        if savepoint:
            return self.savepoint(savepoint, self._last)
        return Completed(entry["checkpoint"], self._last, entry, self.uri)

    def _read(self, number: int) -> dict[str, Any] | None:
        """Return an entry of the log; None if it is gone."""
        path = f"{self.path}/{_LOG}/{_name(number)}"
        try:
            with self.filesystem.open_input_file(path) as file:
                return _checked(unseal(file.read()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"the checkpoint {path} cannot be read: {error}") from error

    def _delete_attempt(self, attempt: str) -> None:
        self.filesystem.delete_dir(f"{self.path}/{_TASKS}/{attempt}")

    def _names(self, folder: str) -> list[str]:
        try:
            selector = fs.FileSelector(f"{self.path}/{folder}", allow_not_found=True)
            return [info.base_name for info in self.filesystem.get_file_info(selector)]
        except OSError as error:
            raise CheckpointError(f"{self.path}/{folder} cannot be listed: {error}") from error

    def _numbers(self, folder: str) -> list[int]:
        names = (name.removesuffix(".json") for name in self._names(folder))
        return sorted(int(name) for name in names if name.isdecimal())

    def _create(self, folder: str, number: int, text: str) -> bool:
        """Write a file unless there is one of its name; return whether it was written."""
        path = f"{self.path}/{folder}/{_name(number)}"
        try:
            self.filesystem.create_dir(f"{self.path}/{folder}", recursive=True)
            if self._is_local:
                return _linked(path, text.encode())
            if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
                return False
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(text.encode())
        except OSError as error:
            raise CheckpointError(f"{path} cannot be written: {error}") from error
        return True

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            try:
                self.filesystem.delete_file(f"{self.path}/{name}")
            except FileNotFoundError:
                raise
            except OSError as error:
                raise CheckpointError(f"{self.path}/{name} cannot be deleted: {error}") from error

    def _fenced(self, have: str) -> FencedError:
        return FencedError(
            f"another driver runs this job: {self.path} is its checkpoint folder now",
            have=have,
            remedy="one driver per checkpoint folder · another folder",
        )


def _linked(path: str, content: bytes) -> bool:
    partial = f"{path}.{secrets.token_hex(4)}.partial"
    try:
        with Path(partial).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            # The driver whose entry is there has deleted this one.
            if Path(path).exists():
                return False
            raise
        _sync(str(Path(path).parent))
        return True
    finally:
        Path(partial).unlink(missing_ok=True)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("format") != _FORMAT:
        raise ValueError(f"it has format {fields.get('format')}; this Headgate knows {_FORMAT}")
    return fields


def _folders(fields: Mapping[str, Any]) -> list[str]:
    """Return the folders of state below this one that an entry names."""
    operators = fields.get("operators", {}).values()
    found = [folder for one in operators for folder, _ in (s for s in one["state"] if s)]
    stages = fields.get("stages", {}).values()
    found += [task["file"][0] for stage in stages for task in stage["tasks"] if task]
    return [folder for folder in found if folder.startswith(f"{_TASKS}/")]


def _name(number: int) -> str:
    return f"{number:010d}.json"
