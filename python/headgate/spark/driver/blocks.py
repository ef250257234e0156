"""The folders on the driver's disk to which Spark writes blocks when memory is short.

Functions of tasks are such blocks, and carry the secrets of exchanges.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.control.logs import log_safely
from headgate.errors import FilesReadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext

_LOG: Final = logging.getLogger("headgate.spark")
#: The consequence of folders that others may read.
READABLE: Final = (
    "other users of this host may read the secrets of exchanges in Spark's blocks on disk"
)

#: Rights of all but the owner. Many hosts have one group for all users.
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def folders(context: SparkContext) -> list[Path]:
    """Return the folders in which the driver keeps blocks."""
    env = context._jsc.sc().env()  # noqa: SLF001 - PySpark has no way to this
    manager = _call(context, env, "SparkEnv", "blockManager", "storage.BlockManager")
    disk = _call(
        context, manager, "storage.BlockManager", "diskBlockManager", "storage.DiskBlockManager"
    )
    return [Path(str(folder.getPath())) for folder in disk.localDirs()]


def _call(context: SparkContext, target: Any, owner: str, name: str, result: str) -> Any:
    """Call a method of a class of Spark.

    py4j looks at all methods of a class to find one, and some of these have types of libraries that are not
    there. A method handle needs the types of one method.
    """
    java = context._jvm.java.lang  # type: ignore[union-attr]  # noqa: SLF001 - as above

    def class_of(short: str) -> Any:
        return java.Class.forName(f"org.apache.spark.{short}")

    kind = java.invoke.MethodType.methodType(class_of(result))
    handle = java.invoke.MethodHandles.publicLookup().findVirtual(class_of(owner), name, kind)
    return handle.bindTo(target).invokeWithArguments([])


def close_to_others(context: SparkContext) -> None:
    """Take all rights in the folders of the driver's blocks from all users but the owner.

    Spark gives everybody the right to read, unless the umask forbids it. Nobody else reads the driver's blocks: a shuffle
    service serves those of executors.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - py4j only where Spark is

    try:
        close(folders(context))
    except (OSError, Py4JError) as error:
        remedy = "spark.io.encryption.enabled=true · a umask of 077 for the driver"
        log_safely(
            _LOG, logging.WARNING, "%s", FilesReadable(READABLE, have=str(error), remedy=remedy)
        )


def close(paths: Iterable[Path]) -> None:
    """Take all rights in the folders from all but their owner.

    Raises:
        OSError: a folder is gone, or belongs to somebody else.
    """
    for path in paths:
        mode = path.stat().st_mode
        if mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
