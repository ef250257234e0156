"""Commits a checkpoint to Kafka and dies by SIGKILL at a step of the transaction.

commit_program.py SERVERS TOPIC STAGING STEP COMMITTABLE...: the step is a number from 1, 0 for none. Prints "done" at the end.
"""

import os
import signal
import sys

from tests.soak.kafka.crashing import crashing

from headgate.sink import CommitterContext
from headgate.sink.kafka import KafkaSink

JOB = "killed"


def main():
    servers, topic, staging, step, *committables = sys.argv[1:]
    at, seen = int(step), []

    def count(name):
        seen.append(name)
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = KafkaSink(topic, servers, delivery="exactly_once", staging=staging)
    committer = sink.create_committer(CommitterContext(JOB))
    crashing(committer, count)
    committer.start(1)
    committer.commit(1, [one.encode() for one in committables])
    committer.close()
    print("done", len(seen))


if __name__ == "__main__":
    main()
