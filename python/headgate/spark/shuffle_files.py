"""The shuffles that are known to write a file for each task of a producer to the local directories of its executor.

By that file a sweep knows how long consumers may ask for the pages of the task. A remote shuffle service writes none, so a
sweep would delete pages that a second attempt at a consumer needs (ADR 0022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Start of the names of all confs that are read here.
SHUFFLE: Final = "spark.shuffle."
PLUGIN: Final = "spark.shuffle.sort.io.plugin.class"
OWN_PLUGIN: Final = "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO"
_MANAGER: Final = "spark.shuffle.manager"
_SORT: Final = "org.apache.spark.shuffle.sort.SortShuffleManager"
#: Spark's names of managers, which it compares without case, -> their classes, which it loads as they are given.
_SHORT_NAMES: Final = {"sort": _SORT, "tungsten-sort": _SORT}
#: Known managers -> True if Spark, from 4.1 on, compares the rows of a task that runs again.
_MANAGERS: Final = {
    _SORT: True,
    "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager": False,
}
#: Known plugins of Spark's own manager.
_PLUGINS: Final = {OWN_PLUGIN, "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO"}


@dataclass(frozen=True, slots=True)
class ShuffleSetting:
    """A setting of Spark's shuffle that matters to kept exchanges.

    Attributes:
        setting: confs with their values.
        remedy: what to set instead, as alternatives separated by " · ".
    """

    setting: str
    remedy: str


def unknown_shuffle(confs: Mapping[str, str]) -> ShuffleSetting | None:
    """Return the setting of a shuffle that is not known to write these files; None if it is known.

    Args:
        confs: of the application.
    """
    manager, plugin = _manager(confs), plugin_of(confs)
    if manager not in _MANAGERS:
        return ShuffleSetting(f"{_MANAGER}={manager}", f"{_MANAGER}=sort")
    if plugin not in _PLUGINS:
        return ShuffleSetting(f"{PLUGIN}={plugin}", f"{PLUGIN}={OWN_PLUGIN}")
    return None


def plugin_of(confs: Mapping[str, str]) -> str:
    """Return the class that stores the files of Spark's own manager."""
    return (confs.get(PLUGIN) or OWN_PLUGIN).strip()


def manager_compares_rows(confs: Mapping[str, str]) -> bool:
    """Return True if the manager computes the checksums by which Spark compares the rows of a task that runs again."""
    return _MANAGERS.get(_manager(confs), False)


def why_no_files(unknown: ShuffleSetting) -> str:
    """Return why rows are not kept with such a shuffle, as a clause."""
    return (
        f"{unknown.setting} is not known to write a file for each task to the executor's local directories, and Headgate "
        "deletes the pages of a task that has none"
    )


def _manager(confs: Mapping[str, str]) -> str:
    name = confs.get(_MANAGER, "sort")
    return _SHORT_NAMES.get(name.lower(), name)
