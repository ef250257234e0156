"""Options of a running job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from headgate import checkpoints

if TYPE_CHECKING:
    from headgate.stream.job.checkpoints import CheckpointConfig

#: Longest time that rows wait for a page to fill, unless the user says otherwise.
BUFFER_TIMEOUT: Final = "5ms"
Alignment: TypeAlias = checkpoints.Alignment
ALIGNMENTS: Final = get_args(Alignment)
Restore: TypeAlias = Literal["savepoint", "latest"]
RESTORES: Final = get_args(Restore)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Options of a running job.

    Attributes:
        name: of the job; sinks know it by this name after a restart.
        checkpoints: when checkpoints are taken.
        alignment: of barriers.
        aligned_timeout: ms after which a timeoutable barrier overtakes rows.
        restarts: failures after which the job starts anew; each successful checkpoint starts the count anew.
        restart_delay: seconds between a failure and the new start.
        heartbeat_timeout: seconds without a heartbeat after which a worker is lost.
        savepoint: folder of a savepoint to start from.
        restore: what to start from if there are a savepoint and checkpoints; None if there must not be both.
        allow_dropped_state: True to ignore state of operators that the job does not have.
        retained: complete checkpoints to keep.
    """

    name: str
    checkpoints: CheckpointConfig
    alignment: Alignment = "aligned"
    aligned_timeout: int = 0
    restarts: int = 3
    restart_delay: float = 0.2
    heartbeat_timeout: float = 10.0
    savepoint: str | None = None
    restore: Restore | None = None
    allow_dropped_state: bool = False
    retained: int = 1
