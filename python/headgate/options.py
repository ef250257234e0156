"""The options of an environment, typed for callers; those of an exchange are in headgate.spark.options.

The table in :mod:`headgate._option_table` is the source: it has the defaults, the limits and the
meanings, and docs/options.md is written from it. A test compares the names below with the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

#: A number of bytes, or text such as ``"64m"``.
Size: TypeAlias = str | int
#: Seconds, or text such as ``"100ms"``.
Duration: TypeAlias = str | float

#: The codec of full buffers; see the option of this name.
Compression: TypeAlias = Literal["none", "lz4", "zstd"]
#: The link between processes of one host; see the option of this name.
SameHostLink: TypeAlias = Literal["auto", "off"]
#: The encryption of TCP connections; see the option of this name.
TlsMode: TypeAlias = Literal["auto", "require", "off"]


class TaskOptions(TypedDict, total=False):
    """Options that environments and exchanges have in common."""

    memory: Size | None
    segment_size: Size | None
    max_record_size: Size | None
    buffers_per_channel: int | None
    floating_buffers_per_gate: int | None
    max_buffers_per_channel: int | None
    max_overdraft_buffers: int | None
    spill_threshold: Size | None
    temp_directories: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    # docs/adr/0016-compressed-buffers.md
    compression: Compression | None
    # docs/adr/0019-lending-pages-within-a-host.md
    same_host_link: SameHostLink | None
    # docs/adr/0031-tls-bound-to-the-handshake.md
    tls: TlsMode | None
    tls_ca: str | PathLike[str] | None
    tls_certificate: str | PathLike[str] | None
    tls_key: str | PathLike[str] | None
    #: ``"off"``, or some of ``"net,gate,kept"``.
    trace: str | None


class EnvironmentOptions(TaskOptions, total=False):
    """Keyword arguments of :class:`headgate.ShuffleEnvironment`; None counts as not given.

    Example:
        >>> import headgate as hg
        >>> options: EnvironmentOptions = {"memory": "8m", "segment_size": "64k"}
        >>> with hg.ShuffleEnvironment(**options) as env:
        ...     env.stats()["segments"]["total"]
        128
    """

    # docs/adr/0015-sending-by-time.md
    buffer_timeout: Duration | None
    # docs/adr/0018-debloating-without-a-timer.md
    buffer_debloat_enabled: bool | None
    buffer_debloat_target: Duration | None
    buffer_debloat_period: Duration | None
    buffer_debloat_samples: int | None
    buffer_debloat_threshold_percentages: int | None
    min_segment_size: Size | None
    starting_segment_size: Size | None
    # docs/adr/0014-partitions-on-disk.md
    max_spill_size: Size | None
    listen: str | None
    partition_request_timeout: Duration | None
    idle_timeout: Duration | None
