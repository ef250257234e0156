"""Names below a sink's path. All of ours start with "_", which readers leave out.

::

    part-<job>-<task>-<n>.parquet            visible data
    _SUCCESS                                 the last job's commit is complete
    _staging/<job>/_job.json                 who runs the job
    _staging/<job>/_commit.json              the journal of its commit, once it is decided
    _staging/<job>/<attempt>/part-<n>.parquet
    _headgate/commits/<query>/<batch>        a streaming query's batch is committed
"""

from __future__ import annotations

from typing import Final

STAGING: Final = "_staging"
JOB: Final = "_job.json"
JOURNAL: Final = "_commit.json"
SUCCESS: Final = "_SUCCESS"
COMMITS: Final = "_headgate/commits"
SUFFIXES: Final = {"parquet": ".parquet", "arrow": ".arrow"}
