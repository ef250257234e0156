"""The host, a process per executor: serves the executor's kept partitions to other hosts until it ends.

It is a bare Python with the native module: no pyarrow, no user's code. All that it needs to know is in
files, so another host can take over at any time. Decision: ADR 0023. :mod:`headgate.spark.tasks.start_host` starts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.tasks.kept_files import folders_of, index_files
from headgate.spark.tasks.kept_lifetime import give_up_attempts, sweep

if TYPE_CHECKING:
    from headgate import _native
    from headgate.spark.tasks.kept_files import IndexFile

#: File in the executor's folder with the host's address, for producers.
ADDRESS: Final = "host.json"
#: File in the same folder that a living host has locked.
LOCK: Final = "host.lock"
#: Seconds between two looks at the folders. A request that comes before waits for its partition.
_LOOK: Final = 0.05
#: Seconds after which the files are listed though no folder seems to have changed: two changes
#: within a tick of the clock look like one.
_LIST: Final = 1.0
#: Seconds between two sweeps.
_SWEEP: Final = 10.0
#: Most processes that one host starts, one after another.
_STARTS: Final = 100
#: Seconds without a file after which the host ends.
_IDLE: Final = 300.0


class Host:
    """Serves the indexes that appear in the folders of one executor.

    Args:
        environment: sends their pages.
        directories: Spark's local directories on the executor.
        folder: ours in one of them, for the address.
        executor: Spark's id of the executor.
    """

    def __init__(
        self,
        environment: _native.Environment,
        directories: tuple[str, ...],
        folder: Path,
        executor: str,
    ) -> None:
        self._environment = environment
        self._executor = executor
        self._directories = directories
        self._folder = folder
        #: Path of a file of indexes that is served -> the attempt that left it.
        self._served: dict[Path, IndexFile] = {}
        #: Those that have a file of pages beside them.
        self._paged: set[Path] = set()
        #: Files of indexes that are served no more, as they or their pages are damaged or gone.
        self._given_up: set[Path] = set()
        self._changed: list[int] = []
        self._listed = self._swept = self._busy = 0.0

    def announce(self) -> None:
        """Write the address to its file."""
        host, port = self._environment.address()
        process = self._environment.process_id.hex()
        address = {"host": host, "port": port, "process": process, "executor": self._executor}
        new = self._folder / (ADDRESS + ".new")
        new.write_text(json.dumps(address), encoding="ascii")
        new.rename(self._folder / ADDRESS)

    def look(self, now: float) -> bool:
        """Serve what is new and withdraw what is gone; return False once the host may end.

        Args:
            now: seconds on the monotonic clock.
        """
        if not self._folder.is_dir():
            return False  # Spark has deleted the executor's directories
        if now - self._swept >= _SWEEP:
            self._swept = now
            with contextlib.suppress(OSError):  # they are being deleted
                sweep(self._directories)
        if damaged := self._environment.take_damaged():
            served = self._served.items()
            self._lose({path for path, index in served if index.partition_id in damaged})
        changed = self._times()
        if changed != self._changed or now - self._listed >= _LIST:
            self._changed, self._listed = changed, now
            self._list()
        if self._served or not self._busy:
            self._busy = now
        return now - self._busy < _IDLE or not self._withdrew_the_address()

    def _times(self) -> list[int]:
        times = []
        for folder in folders_of(self._directories):
            with contextlib.suppress(FileNotFoundError):  # no producer has used it
                times.append(folder.stat().st_mtime_ns)
        return times

    def _list(self) -> None:
        files = {file.path: file for file in index_files(folders_of(self._directories))}
        self._given_up &= files.keys()
        gone = self._served.keys() - files.keys()
        gone |= {path for path in self._paged - gone if not path.with_suffix("").exists()}
        if gone:
            self._lose(gone)
        for path in files.keys() - self._served.keys() - self._given_up:
            self._environment.serve(files[path].partition_id, str(path))
            self._served[path] = files[path]
            if path.with_suffix("").exists():
                self._paged.add(path)

    def _lose(self, paths: set[Path]) -> None:
        """Withdraw partitions whose files are damaged or gone. If Spark still counts on one, have it made again."""
        lost = {path: self._served.pop(path) for path in paths}
        # Before consumers hear of the loss: their next attempts must not find the map output.
        with contextlib.suppress(OSError):  # the directories are being deleted
            give_up_attempts({str(index.attempt) for index in lost.values()}, self._directories)
        for path, index in lost.items():
            self._paged.discard(path)
            self._environment.withdraw(index.partition_id)
        self._given_up |= paths

    def _withdrew_the_address(self) -> bool:
        """Withdraw the address unless there is a file. A producer reads it after it has left its file."""
        (self._folder / ADDRESS).unlink(missing_ok=True)
        self._list()
        if self._served:
            self.announce()
        return not self._served


def main() -> None:
    """Run a host. Its configuration comes as JSON on standard input, see :func:`.start_host.ensure`.

    A process without the native module starts the one that serves, and starts it again if it is
    killed: at the same address, as consumers may know it. The one that serves needs it for nothing else,
    and goes on without it.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config: dict[str, Any] = json.loads(sys.stdin.read())
    address = Path(config["folder"], ADDRESS)
    before: dict[str, Any] | None = config["before"]
    for _ in range(_STARTS):
        child = os.fork()
        if child == 0:
            _serve(config, before)
            return
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        with contextlib.suppress(FileNotFoundError):  # it was killed before it had written it
            before = json.loads(address.read_text(encoding="ascii"))


def _serve(config: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Serve until the executor has ended; at the address of before, if given."""
    environment = _environment(config, before)
    try:
        host = Host(
            environment, tuple(config["directories"]), Path(config["folder"]), config["executor"]
        )
        host.announce()
        executor = _watch(config["jvm"])
        while host.look(time.monotonic()):
            if executor is None:
                time.sleep(_LOOK)
            elif select.select([executor], [], [], _LOOK)[0]:
                return
    finally:
        environment.close()


def _environment(config: dict[str, Any], before: dict[str, Any] | None) -> _native.Environment:
    """Return an environment that listens."""
    from headgate import _native  # noqa: PLC0415 - the process that starts others has no need of it

    environment = _native.Environment(
        config["options"]
        | ({} if before is None else {"listen": f"{before['host']}:{before['port']}"}),
        secret=bytes.fromhex(config["secret"]),
        exchange=bytes.fromhex(config["application"]),
        run=0,
        epoch=0,
        process=None if before is None else bytes.fromhex(before["process"]),
    )
    try:
        environment.address()
    except Exception:
        if before is None:
            raise
        environment.close()  # another process has the port now
        return _environment(config, None)
    return environment


def _watch(process: int | None) -> int | None:
    """Return a descriptor that is readable once the executor has ended; None if it is not known."""
    if process is None:
        return None
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        sys.exit(0)
