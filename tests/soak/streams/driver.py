"""A driver of a job: ``driver SPEC``, with the options as JSON. Commands come on the standard input, a line each::

    savepoint FOLDER | stop FOLDER | stop | drain | cancel

It says what happened on its standard output, as JSON: ``started``, the outcome of each command, and at last ``over``, with
how the job ended and what it left. It ends with its standard input.
"""

import contextlib
import json
import os
import select
import sys
import threading
from importlib import import_module
from pathlib import Path

from tests.kit import processes, sessions
from tests.kit.leftovers import Leftovers

import headgate as hg

_saying = threading.Lock()


def say(event, **fields):
    """Print an event."""
    with _saying:
        print(json.dumps({"event": event, **fields}), flush=True)


def carry_out(query, words):
    """Run a command, and say what came of it."""
    command, *folder = words
    try:
        if command == "savepoint":
            query.savepoint(*folder, timeout=60)
        elif command == "stop":
            query.stop(savepoint=folder[0] if folder else None, timeout=60)
        elif command == "drain":
            query.stop(drain=True, timeout=60)
        else:
            query.cancel()
    except Exception as error:  # noqa: BLE001 - said
        say("failed", command=words, error=f"{type(error).__name__}: {error}")
    else:
        say("done", command=words)


def session(root):
    """Return a session with two executors, which are replaced however often they are killed."""
    # The job's modules are imported by name in executors too.
    paths = os.environ["PYTHONPATH"]
    made = sessions.builder("local-cluster[2,2,1024]", "faults", root)
    made = made.config("spark.deploy.maxExecutorRetries", "-1")
    made = made.config("spark.executorEnv.PYTHONPATH", paths).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def start(spec, spark):
    """Start the job, on Spark if there is a session; return its query."""
    savepoint = spec["savepoint"]
    return (
        import_module(spec["module"])
        .job(spec)
        .start(
            spark=spark,
            checkpoint=spec["checkpoint"],
            savepoint=savepoint,
            restore=None if savepoint is None else "latest",
            max_parallelism=32,
            restarts=10_000,
            options={"memory": "16m", "same_host_link": spec["link"]},
            **spec["options"],
        )
    )


def main(spec):
    """Run the job to its end."""
    processes.mark()
    spark = session(Path(spec["root"])) if spec["on_spark"] else None
    made = []
    original = hg.ShuffleEnvironment.__init__

    def remember(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    hg.ShuffleEnvironment.__init__ = remember
    leftovers = Leftovers(made, spark=None if spark is None else "live")
    try:
        query = start(spec, spark)
    except hg.HeadgateError as error:
        say("over", state="refused", error=str(error), left=[], restarts=0, attempts=0)
        return
    say("started", pid=os.getpid())
    threads, rest = [], b""
    while not query._master.wait(0):
        if not select.select([0], [], [], 0.02)[0]:
            continue
        data = os.read(0, 4096)
        if not data:
            os._exit(1)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            thread = threading.Thread(target=carry_out, args=(query, line.decode().split()))
            thread.start()
            threads.append(thread)
    for thread in threads:
        thread.join()
    error = None
    try:
        query.await_termination(0)
    except hg.HeadgateError as failure:
        error = str(failure)
    status = query.status
    left = []
    try:
        leftovers.check(20)
    except AssertionError as found:
        left = str(found).splitlines()
    say(
        "over",
        state=status.state,
        error=error,
        left=left,
        restarts=status.restarts,
        attempts=status.number,
    )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(sys.argv[1]))
