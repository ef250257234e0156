"""Child processes, each with a session of its own, that run one seed after another."""

import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import traceback
import uuid
from pathlib import Path

from tests.soak.chaos import job, remains
from tests.soak.chaos.plan import make_plan
from tests.soak.chaos.stage import Stage

#: Seconds for one run with start and clean-up, after which its child counts as lost.
PATIENCE = 300.0
#: Outcomes after which a session is not used again.
_DAMAGED = frozenset({"hang", "left"})


def run_seeds(seeds, options, tell):
    """Run seeds in children; call ``tell`` with each result, in this process.

    Args:
        seeds: seeds in any order.
        options: ``processes``, ``limit``, ``kind`` and ``mutation``.
        tell: called with a dictionary, by one thread at a time.
    """
    left, children = list(reversed(seeds)), set()
    lock = threading.Lock()

    def take():
        with lock:
            return left.pop() if left else None

    def told(result):
        with lock:
            tell(result)

    threads = [
        threading.Thread(target=_lead, args=(take, told, options, children))
        for _ in range(min(options.processes, len(seeds)))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        # After an interrupt the children are killed, so that no thread waits for one.
        left.clear()
        for child in list(children):
            child.kill()
        raise


def _lead(take, told, options, children):
    child = None
    try:
        while (seed := take()) is not None:
            if child is None:
                child = _Child(options)
                children.add(child)
            result = child.run(seed)
            told(result)
            if result["outcome"] in _DAMAGED or result["outcome"] == "lost":
                child.kill()
                children.discard(child)
                child = None
        if child is not None and (left := child.stop()):
            told(_lost(None, "left", f"after the session was stopped: {'; '.join(left)}"))
    finally:
        if child is not None:
            child.kill()


def _lost(seed, outcome, detail):
    return {"seed": seed, "kind": "session", "outcome": outcome, "detail": detail}


class _Child:
    def __init__(self, options):
        self._token = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-chaos-"))
        self._options = options
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        fields = (self._token, str(self._folder), options.limit, options.kind, options.mutation)
        self._process = context.Process(target=_serve, args=(theirs, *fields))
        self._process.start()
        theirs.close()
        self._keeps = False

    def run(self, seed):
        """Return the result of a seed, with the outcome ``lost`` if the child has ended."""
        result = self._ask(seed)
        if result is None:
            log = self._folder / "log.txt"
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            return _lost(seed, "lost", f"the process of the session has ended, see {log}: {last}")
        self._keeps = self._keeps or result["outcome"] in {"hang", "lost"}
        return result

    def stop(self):
        """Stop the session normally; return the processes that are left of it."""
        return self._ask(None) or []

    def kill(self):
        """Kill the child and every process that it started."""
        self._process.kill()
        self._process.join()
        remains.kill_all(self._token)
        if not self._keeps:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, what):
        try:
            self._pipe.send(what)
            if self._pipe.poll(PATIENCE):
                return self._pipe.recv()
        except (OSError, EOFError):
            pass  # the child has ended, and its log has the reason
        self._keeps = True
        return None


def _serve(pipe, token, folder, limit, kind, mutation):
    log = os.open(Path(folder) / "log.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        from pyspark import cloudpickle

        # Executors cannot import the tests.
        cloudpickle.register_pickle_by_value(job)
        stage = Stage(token, Path(folder), limit)
        while (seed := pipe.recv()) is not None:
            pipe.send(stage.run(make_plan(seed, kind), mutation))
        pipe.send(stage.stop())
    except BaseException:  # noqa: BLE001 - whatever it is, the session ends with it
        traceback.print_exc()
        sys.stderr.flush()
        remains.kill_all(token)
        os._exit(1)  # threads of a broken session must not delay the exit
