"""The folder of a job's checkpoints: a log of complete ones, which only one driver continues.

The log's entries are numbered one by one, and each is created only if there is none of its number. A driver begins with an
entry of its own, its claim, which repeats the one before. So a driver that was taken for dead and is not can neither
complete a checkpoint nor commit its output, once another one has claimed the folder. The state of an attempt is in a
folder that begins with the number of the claim: what newer drivers have written is never deleted by older ones.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate._sealed import seal, unseal
from headgate.errors import CheckpointError
from headgate.sink.failure import UnsafeError
from headgate.stream.state.locations import TASKS, absolute, safe_name, storage_of

if TYPE_CHECKING:
    from headgate.sink.storage import Entry, Storage

_FORMAT: Final = 1
_LOG: Final = "log"
#: Names of entries, of entries that are being written, and of the folders of attempts. Others are not ours.
_ENTRY: Final = re.compile(r"(\d{10})\.json", re.ASCII)
_PARTIAL: Final = re.compile(r"(\d{10})\.json\.[0-9a-f]{8}\.partial", re.ASCII)
_ATTEMPT: Final = re.compile(r"(\d{10})-[0-9a-f]{8}-\d{6}", re.ASCII)
#: Drivers that may claim the folder while another one does.
_TRIES: Final = 100
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

    @property
    def for_sinks(self) -> int | None:
        """The checkpoint that sinks continue from; None for state that no job has written, with which a job begins."""
        return None if self.fields.get("is_initial") else self.checkpoint


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
            self._storage, self.path = storage_of(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be used for checkpoints: {_summary_of(error)}"
            ) from error
        self.uri = absolute(path)
        self._retained = retained
        #: Names this driver, in its entries and its attempts.
        self._owner = secrets.token_hex(4)
        #: Position of its claim.
        self._claimed = 0
        #: Position of the entry that the job continues from, or has written last; 0 for none.
        self._last = 0

    def newest(self) -> int | None:
        """Return the id of the newest checkpoint, whoever has written it; None if there is none.

        Raises:
            CheckpointError: the newest entry is damaged, or the folder cannot be read.
        """
        return self._newest_entry().get("checkpoint")

    def job_name(self) -> str | None:
        """Return the name of the job that has written the newest checkpoint; None if there is none, or it has no name.

        Raises:
            CheckpointError: the newest entry is damaged, or the folder cannot be read.
        """
        newest = self.newest_checkpoint()
        return None if newest is None else newest.fields.get("name")

    def newest_checkpoint(self) -> Completed | None:
        """Return the newest checkpoint, whoever has written it; None if there is none.

        Raises:
            CheckpointError: the newest entry is damaged, or the folder cannot be read.
        """
        return self._checkpoint_of(self._newest_entry())

    def _newest_entry(self) -> dict[str, Any]:
        """Return the newest entry of the log, whoever has written it; an empty one if there is none."""
        last = max(self._numbers(_LOG), default=0)
        return (self._read(last) if last else None) or {}

    def claim(self, *, anew: bool = False) -> Completed | None:
        """Become the driver that writes here, and return the checkpoint to continue from.

        The claim is an entry of the log, so no other driver can write the one that it would have written next.

        Args:
            anew: True to continue from none of the checkpoints that are here.

        Raises:
            CheckpointError: an entry is damaged, or the folder cannot be written.
        """
        for _ in range(_TRIES):
            last = max(self._numbers(_LOG), default=0)
            restored: dict[str, Any] = {}
            if last:
                entry = self._read(last)
                if entry is None:
                    continue  # A newer one has replaced it.
                restored = {} if anew else entry
            if self._append(last + 1, restored):
                self._claimed = self._last
                self._delete_partial()
                return self._checkpoint_of(restored)
        path = f"{self.path}/{_LOG}/{_name(last + 1)}"
        raise CheckpointError(
            f"the checkpoint folder {self.path} cannot be claimed",
            have=f"{path} cannot be made, and is no entry",
            remedy="remove it, once you know who made it · another folder",
        )

    def _delete_partial(self) -> None:
        """Delete what older drivers left that ended while they wrote an entry, as far as it can be none any more."""
        for entry in self._names(_LOG):
            match = _PARTIAL.fullmatch(_last_name(entry))
            if match and entry.is_file and int(match[1]) <= self._claimed:
                self._delete(f"{_LOG}/{match[0]}")

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
        return self._checkpoint_of(entry)

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
        retained: set[int] = set()
        for number in sorted(self._numbers(_LOG), reverse=True):
            if number > self._last:
                return
            entry = self._read(number) if len(retained) < self._retained else None
            checkpoint = None if entry is None else entry.get("checkpoint")
            if number == self._last or (checkpoint is not None and checkpoint not in retained):
                needed |= {folder.split("/")[1] for folder in _folders(entry or {})}
            else:
                self._delete(f"{_LOG}/{_name(number)}")
            if checkpoint is not None:
                retained.add(checkpoint)
        for folder in self._names(TASKS):
            attempt = _ATTEMPT.fullmatch(_last_name(folder))
            is_old = attempt and folder.is_folder and int(attempt[1]) <= self._claimed
            if attempt and is_old and attempt[0] not in needed:
                with suppress(OSError):  # it is tried again after the next checkpoint
                    self._delete_attempt(attempt[0])

    def task_folder(self, attempt: str, stage: int, index: int, uid: str) -> str:
        """Return the folder for the snapshots of an operator's task, relative to this one."""
        return f"{TASKS}/{attempt}/{stage}-{index}-{safe_name(uid)}"

    @staticmethod
    def refuse_savepoint(path: str) -> None:
        """Refuse a folder for a savepoint that has something already.

        Raises:
            CheckpointError: it has, or it cannot be listed.
        """
        try:
            storage, root = storage_of(path)
            there = storage.list(root)
        except (OSError, ValueError) as error:
            raise _failed(f"the folder {path} cannot be used for a savepoint", error) from error
        if there:
            is_savepoint = any(_last_name(entry) == _METADATA for entry in there)
            raise CheckpointError(
                f"{path} has a savepoint already"
                if is_savepoint
                else f"{path} is no new folder, and a savepoint needs one",
                have=", ".join(_last_name(entry) for entry in there[:3])
                + ", ..." * (len(there) > 3),
                remedy="another folder, such as one with the time in its name",
            )

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
        storage, root = storage_of(path)
        name = f"{root}/{_METADATA}"
        try:
            if not replace and storage.is_file(name):
                raise CheckpointError(f"{path} has a savepoint already", remedy="another folder")
            storage.make_folder(root, parents=True)
            data = seal({"format": _FORMAT, **fields}).encode()
            storage.write_atomic(name, data, through=root)
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise _failed(f"the savepoint {path} cannot be written", error) from error

    @staticmethod
    def savepoint(path: str, number: int | None = None) -> Completed:
        """Return a savepoint.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        try:
            storage, root = storage_of(path)
            data = storage.read(f"{root}/{_METADATA}")
            if data is None:
                raise FileNotFoundError(f"it has no {_METADATA}")
            fields = _check_format(unseal(data))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} is no savepoint: {_summary_of(error)}",
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
            if self._may_have(number):
                raise
            raise NotWrittenError(error.summary, remedy=error.remedy) from error
        if max(self._numbers(_LOG), default=0) > number:
            # The one of this number is deleted already, because it was replaced.
            self._delete(f"{_LOG}/{_name(number)}")
            return False
        self._last = number
        return True

    def _checkpoint_of(self, entry: Mapping[str, Any]) -> Completed | None:
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
            data = self._storage.read(path)
            return None if data is None else _check_format(unseal(data))
        except (OSError, ValueError) as error:
            raise _failed(f"the checkpoint {path} cannot be read", error) from error

    def _may_have(self, number: int) -> bool:
        """Return False if there is no entry of a number for sure."""
        try:
            return self._storage.is_file(f"{self.path}/{_LOG}/{_name(number)}")
        except UnsafeError:
            return False
        except OSError:
            return True

    def _delete_attempt(self, attempt: str) -> None:
        self._storage.delete_tree(f"{self.path}/{TASKS}/{attempt}")

    def _names(self, folder: str) -> list[Entry]:
        try:
            return self._storage.list(f"{self.path}/{folder}")
        except OSError as error:
            raise _failed(f"{self.path}/{folder} cannot be listed", error) from error

    def _numbers(self, folder: str) -> list[int]:
        files = (_last_name(entry) for entry in self._names(folder) if entry.is_file)
        return sorted(int(match[1]) for name in files if (match := _ENTRY.fullmatch(name)))

    def _create(self, folder: str, number: int, text: str) -> bool:
        """Write a file unless there is one of its name; return whether it was written."""
        path = f"{self.path}/{folder}/{_name(number)}"
        storage = self._storage
        try:
            storage.make_folder(f"{self.path}/{folder}", parents=True)
            if storage.is_local:
                return _write_new(storage, path, text.encode())
            if storage.is_file(path):
                return False
            with storage.open_output(path) as stream:
                stream.write(text.encode())
        except OSError as error:
            raise _failed(f"{path} cannot be written", error) from error
        return True

    def _delete(self, name: str) -> None:
        try:
            self._storage.delete_file(f"{self.path}/{name}")
        except OSError as error:
            raise _failed(f"{self.path}/{name} cannot be deleted", error) from error

    def _fenced(self, have: str) -> FencedError:
        return FencedError(
            f"another driver runs this job: {self.path} is its checkpoint folder now",
            have=have,
            remedy="one driver per checkpoint folder · another folder",
        )


def _write_new(storage: Storage, path: str, content: bytes) -> bool:
    """Write a file in one atomic step, unless there is one of its name; return whether it was written."""
    partial = f"{path}.{secrets.token_hex(4)}.partial"
    try:
        with storage.open_output(partial) as stream:
            stream.write(content)
        storage.sync(partial)
        storage.move_new(partial, path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        # The driver whose entry is there has deleted this one.
        if storage.is_file(path):
            return False
        raise
    finally:
        with suppress(OSError):  # the next driver deletes it
            storage.delete_file(partial)
    storage.sync(path.rpartition("/")[0])
    return True


def _summary_of(error: Exception) -> str:
    """Return an error in one line."""
    return getattr(error, "summary", str(error))


def _failed(problem: str, error: Exception) -> CheckpointError:
    return CheckpointError(f"{problem}: {_summary_of(error)}", remedy=getattr(error, "remedy", ""))


def _last_name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _check_format(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("format") != _FORMAT:
        raise ValueError(f"it has format {fields.get('format')}; this Headgate knows {_FORMAT}")
    return fields


def _folders(fields: Mapping[str, Any]) -> list[str]:
    """Return the folders of state below this one that an entry names."""
    operators = fields.get("operators", {}).values()
    folders = [snapshot[0] for operator in operators for snapshot in operator["state"] if snapshot]
    stages = fields.get("stages", {}).values()
    folders += [task["file"][0] for stage in stages for task in stage["tasks"] if task]
    return [folder for folder in folders if folder.startswith(f"{TASKS}/")]


def _name(number: int) -> str:
    return f"{number:010d}.json"
