"""The confs by which Spark's shuffle files outlive an executor, although the pages of kept exchanges end with it.

Spark then still finds the rows that say which producer has pages, so it does not run the producer again; and the process that
served the pages to other hosts has ended with the executor (ADR 0023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.confs import is_true
from headgate.spark.shuffle_files import OWN_PLUGIN, PLUGIN, ShuffleSetting, plugin_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVICE: Final = "spark.shuffle.service.enabled"
_TRACKING: Final = "spark.dynamicAllocation.shuffleTracking.enabled"
#: Spark moves shuffle files to other executors if all of these are true -> their defaults.
_MIGRATION: Final = {
    "spark.decommission.enabled": "false",
    "spark.storage.decommission.enabled": "false",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
_BY_SPARK: Final = 'mode="spark"'


def outliving(confs: Mapping[str, str]) -> ShuffleSetting | None:
    """Return the setting by which shuffle files outlive their executor; None if they end with it.

    Args:
        confs: of the application.
    """
    if is_true(confs, _SERVICE):
        tracking = f"{_SERVICE}=false, and {_TRACKING}=true where allocation is dynamic"
        return ShuffleSetting(f"{_SERVICE}=true", f"{tracking} · {_BY_SPARK}")
    if all(is_true(confs, name, default) for name, default in _MIGRATION.items()):
        first, *_, last = _MIGRATION
        return ShuffleSetting(f"{first}=true and {last}=true", f"{last}=false · {_BY_SPARK}")
    plugin = plugin_of(confs)
    return None if plugin == OWN_PLUGIN else ShuffleSetting(f"{PLUGIN}={plugin}", _BY_SPARK)


def consequence(files: ShuffleSetting | None) -> str:
    """Return what the loss of an executor does to a kept exchange, as a sentence.

    Args:
        files: the setting by which shuffle files outlive it, if there is one.
    """
    if files is None:
        return "Spark runs again the producers of an executor that ends"
    return (
        f"{files.setting}: Spark's shuffle files outlive an executor, and its pages of kept exchanges do not; if it ends "
        "before they are read, consumers on other hosts fail, and the job may"
    )
