"""Sessions of Spark Connect, whose client has no Spark driver in its process: only DataFrame calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import NotBuiltError
from headgate.spark.confs import is_connect
from headgate.spark.slots import Slots, from_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def connect_error(what: str, session: str, remedy: str) -> NotBuiltError:
    """Return the error for a call that needs a classic session.

    Args:
        what: what the call asks for.
        session: the thing that belongs to Spark Connect.
        remedy: what to do instead.
    """
    return NotBuiltError(
        f"{what} needs a classic Spark session; this {session} belongs to Spark Connect",
        asked="a Spark Connect session",
        have="no Spark driver in this process, which is where it is coordinated",
        remedy=remedy,
    )


def master_of(session: SparkSession) -> str:
    """Return the master of the application that runs the session's jobs; empty if it is not known."""
    if is_connect(session):
        return session.conf.get("spark.master", None) or ""
    return session.sparkContext.master or ""


def slots_on_connect(session: SparkSession) -> Slots:
    """Return the slots that the master names, else as many as Spark's default number of partitions."""
    slots = from_master(master_of(session))
    if slots is not None:
        return slots
    default = int(session.conf.get(_PARTITIONS) or 200)
    return Slots(default, f"{_PARTITIONS}={default}, as the slots of the server are not known here")
