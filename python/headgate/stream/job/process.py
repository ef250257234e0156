"""``python -m headgate.stream.job.process``: a worker process, as :class:`ProcessWorkers` starts it."""

import sys

from headgate.stream.job.local import run_process

if __name__ == "__main__":
    sys.exit(run_process())
