"""Arrow types with other types inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: Pyarrow's test of a kind of lists, and its function that makes the type.
_LISTS: Final = (
    ("is_list", "list_"),
    ("is_large_list", "large_list"),
    ("is_list_view", "list_view"),
    ("is_large_list_view", "large_list_view"),
)


def with_inner(kind: Any, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a type whose inner fields are replaced, in their order; a type without any as it is.

    Args:
        kind: any type. The values of a dictionary or of runs, and the storage of an extension type, are not inner
            fields.
        change: returns the new field; it is called with the key and the value of a map, not with its entries.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.types as pt  # noqa: PLC0415 - slow to import

    if pt.is_struct(kind):
        return pa.struct([change(kind.field(place)) for place in range(kind.num_fields)])
    if pt.is_map(kind):
        key, value = change(kind.key_field), change(kind.item_field)
        return pa.map_(key, value, keys_sorted=kind.keys_sorted)
    if pt.is_union(kind):
        fields = [change(kind.field(place)) for place in range(kind.num_fields)]
        return pa.union(fields, kind.mode, kind.type_codes)
    if pt.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    for test, make in _LISTS:
        # The oldest supported pyarrow has no views of lists.
        if getattr(pt, test, _never)(kind):
            changed: pa.DataType = getattr(pa, make)(change(kind.value_field))
            return changed
    return kind


def _never(_: Any) -> bool:
    return False
