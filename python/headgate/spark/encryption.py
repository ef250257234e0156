"""Decides if the tasks of an exchange encrypt their connections. ADR 0031."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.spark.confs import context_confs, is_connect, session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate._options import Options

#: Confs by which a deployment says that its network is not trusted.
_SECURED: Final = (
    "spark.authenticate",
    "spark.network.crypto.enabled",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)


def with_tls(options: Options, session: SparkSession) -> Options:
    """Return the options of an exchange with ``tls`` decided, if it is ``"auto"``."""
    if options["tls"] != "auto":
        return options
    confs = (
        session_confs(session, "spark.")
        if is_connect(session)
        else context_confs(session.sparkContext)
    )
    conf = next((name for name in _SECURED if confs.get(name) == "true"), None)
    values = {**options.values_by_name, "tls": "off" if conf is None else "require"}
    sources = {**options.sources, "tls": conf or options.sources["tls"]}
    return replace(options, values_by_name=values, sources=sources)
