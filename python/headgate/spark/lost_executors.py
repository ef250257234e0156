"""The confs by which Spark's shuffle files outlive an executor, although the pages of kept exchanges end with it.

Spark then still finds the rows that say which producer has pages, so it does not run the producer again; and the process that
served the pages to other hosts has ended with the executor (ADR 0023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVICE: Final = "spark.shuffle.service.enabled"
#: Spark moves shuffle files to other executors if all of these are true -> their defaults.
_MIGRATION: Final = {
    "spark.decommission.enabled": "false",
    "spark.storage.decommission.enabled": "false",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
_PLUGIN: Final = "spark.shuffle.sort.io.plugin.class"
_OWN_PLUGIN: Final = "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO"

#: What to do where shuffle files outlive an executor.
REMEDY: Final = (
    f"{_SERVICE}=false, with spark.dynamicAllocation.shuffleTracking.enabled=true where allocation is dynamic · "
    f'{list(_MIGRATION)[-1]}=false · mode="spark"'
)


def outlives(confs: Mapping[str, str]) -> str:
    """Return the setting by which shuffle files outlive their executor; empty if they end with it.

    Args:
        confs: of the application.
    """
    if _is_true(confs.get(_SERVICE)):
        return f"{_SERVICE}=true"
    if all(_is_true(confs.get(name, default)) for name, default in _MIGRATION.items()):
        return f"{next(iter(_MIGRATION))}=true, with shuffle files that move"
    plugin = (confs.get(_PLUGIN) or _OWN_PLUGIN).strip()
    return "" if plugin == _OWN_PLUGIN else f"{_PLUGIN}={plugin}"


def consequence(setting: str) -> str:
    """Return what the loss of an executor does to a kept exchange, as a sentence.

    Args:
        setting: of :func:`outlives`; may be empty.
    """
    if not setting:
        return "Spark runs again the producers of an executor that ends"
    return (
        f"{setting}: Spark's shuffle files outlive an executor, and the pages of a kept exchange do not; if one ends that has "
        "pages, consumers on other hosts fail, and so does the job"
    )


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() == "true"
