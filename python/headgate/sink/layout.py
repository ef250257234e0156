"""Names below a sink's path. All but data files start with "_", which readers ignore.

::

    part-<job>-<task>-<n>.parquet              visible data
    _SUCCESS                                   marks a complete commit of the last job
    _staging/<job>/_job.json                   the owner of the job
    _staging/<job>/_commit.json                the journal of the job's decided commit
    _staging/<job>/<attempt>/part-<n>.parquet  a staged file
    _headgate/commits/<query>/<batch>          marks a committed batch of a streaming query
"""

from __future__ import annotations

from typing import Final

STAGING: Final = "_staging"
JOB: Final = "_job.json"
JOURNAL: Final = "_commit.json"
SUCCESS: Final = "_SUCCESS"
COMMITS: Final = "_headgate/commits"
SUFFIXES: Final = {"parquet": ".parquet", "arrow": ".arrow"}
