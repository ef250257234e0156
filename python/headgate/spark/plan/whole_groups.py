"""Refuses per_key where rows of one key would be in several partitions, so that its groups would be torn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._kinds import kind_of
from headgate.errors import OptionError
from headgate.functions.per_key import PerKey
from headgate.selectors import (
    HashSelector,
    KeyGroupSelector,
    RebalanceSelector,
    RescaleSelector,
    RoundRobinSelector,
    ShuffleSelector,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Selectors that look at no key.
_IN_TURN: Final = (RebalanceSelector, RescaleSelector, RoundRobinSelector, ShuffleSelector)


def check_whole_groups(map_: Any, reduce: Any, by: Any, num_partitions: int | None) -> None:
    """Check that functions by key get all rows of a key.

    Functions of a batch and columns that Spark computes are taken: they may depend on the key alone.

    Args:
        map_: it gets the partitions of the input, whatever their rows are.
        reduce: it gets the partitions by ``by``.
        by: as a request has it.
        num_partitions: of the result; None if it is not known.

    Raises:
        OptionError: a group would be torn.
    """
    if isinstance(map_, PerKey):
        raise OptionError(
            f"map is a function by {_names(map_.keys)}, and map gets the rows of a key in several partitions",
            remedy=f"by={map_.keys!r}, reduce=per_key(...) · map=lambda batches: f(batches) for what may see a part of a group",
        )
    if not isinstance(reduce, PerKey) or num_partitions == 1:
        return
    torn = _torn(by, {key.casefold() for key in reduce.keys})
    if torn:
        raise OptionError(
            f"reduce is a function by {_names(reduce.keys)}, and {torn}, so that rows of one key are in several partitions",
            asked=f"per_key({reduce.keys!r})",
            have="no by" if by is None else f"by={by if isinstance(by, list) else kind_of(by)}",
            remedy=f"by={reduce.keys!r} · per_key by {reduce.keys!r} and the columns of by · num_partitions=1",
        )


def _torn(by: Any, keys: set[str]) -> str:
    """Return why rows of one key are apart; empty if they are not, or if it is not known."""
    if by is None:
        return "rows go to the partitions in turn"
    if isinstance(by, _IN_TURN):
        return f"{kind_of(by)} looks at no key"
    others = [name for name in _columns(by) if name.casefold() not in keys]
    return f"by has {others[0]!r}, which is no key" if others else ""


def _columns(by: Any) -> Iterable[str]:
    if isinstance(by, HashSelector):
        return _columns(list(by.columns))
    if isinstance(by, KeyGroupSelector):
        return _columns([by.column])
    names = by if isinstance(by, list) else []
    return [
        name if isinstance(name, str) else name[0]
        for name in names
        if isinstance(name, (str, tuple))
    ]


def _names(keys: list[str]) -> str:
    return ", ".join(map(repr, keys))
