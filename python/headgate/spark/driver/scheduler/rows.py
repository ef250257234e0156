"""The rows of a DataFrame as an RDD, made beside other threads."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame


def rdd_of(df: DataFrame) -> RDD[Any]:
    """Return ``df.rdd`` without the lock that all DataFrames of the process may share.

    With adaptive execution ``rdd`` runs the stages below a shuffle. Their tasks may be consumers of
    another exchange, whose producer job needs an RDD of its own to begin. ``rdd`` is a
    ``functools.cached_property``, which before Python 3.12 holds one lock per class while it
    computes (https://github.com/python/cpython/issues/87634): the inner job would wait for ever.
    """
    attribute = inspect.getattr_static(type(df), "rdd", None)
    if isinstance(attribute, functools.cached_property):
        rdd: RDD[Any] = attribute.func(df)
        return rdd
    return df.rdd  # a plain property in pyspark 4.0: no lock
