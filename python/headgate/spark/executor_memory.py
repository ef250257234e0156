"""The memory that Spark's confs give to an executor: its heap, and what a container has beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB: Final = 1 << 20
#: Spark's defaults: of the memory beside the heap, and of the heap.
_LEAST_OVERHEAD: Final = 384 * _MIB
_OVERHEAD_FACTOR: Final = 0.1
#: Of programs that are no JVM's, such as PySpark.
_K8S_FACTOR: Final = 0.4
_HEAP: Final = 1 << 30
#: Beginnings of masters whose containers are limited to heap and overhead.
_CONTAINERS: Final = ("yarn", "k8s")
PYTHON: Final = "spark.executor.pyspark.memory"
OVERHEAD: Final = "spark.executor.memoryOverhead"


def heap(confs: Mapping[str, str]) -> int:
    """Return the bytes of an executor's heap."""
    return conf_size(confs.get("spark.executor.memory"), _MIB) or _HEAP


def python_memory(confs: Mapping[str, str]) -> int | None:
    """Return the address space that the Python workers of an executor share; None if Spark sets no limit."""
    return conf_size(confs.get(PYTHON), _MIB)


def beside_heap(master: str, confs: Mapping[str, str]) -> int | None:
    """Return the bytes that a container has beside the heap; None if the master limits no containers."""
    if not master.startswith(_CONTAINERS):
        return None
    usual = _K8S_FACTOR if master.startswith("k8s") else _OVERHEAD_FACTOR
    share = int(_factor(confs.get("spark.executor.memoryOverheadFactor"), usual) * heap(confs))
    least = conf_size(confs.get("spark.executor.minMemoryOverhead"), _MIB) or _LEAST_OVERHEAD
    # Spark counts in MiB.
    overhead = conf_size(confs.get(OVERHEAD), _MIB) or max(least, share - share % _MIB)
    return overhead + (python_memory(confs) or 0)


def conf_size(value: Any, unit: int = 1) -> int | None:
    """Return bytes of an option or of a conf of Spark; None if there are none, or they make no sense.

    Args:
        value: the value.
        unit: bytes of a number without a unit.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value > 0 else None
    if not isinstance(value, str) or not value.strip():
        return None
    text = value.strip().lower()
    try:
        return int(text) * unit if text.isdecimal() else parse_size(text)
    except (TypeError, ValueError):
        return None


def _factor(text: str | None, usual: float) -> float:
    try:
        factor = float(text or usual)
    except ValueError:
        return usual
    return factor if 0 <= factor < 1000 else usual
