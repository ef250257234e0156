"""Runs plans on one session, one after another, and returns the outcome of each."""

import shutil
import threading
import time
import traceback

from tests.soak.chaos import job, remains
from tests.soak.chaos.fault import Fault
from tests.soak.chaos.judge import misfit, said
from tests.soak.chaos.session import make_session, wait_ready
from tests.soak.chaos.watch import Watch

#: Seconds from the start of a run to its fault. Only a job that never begins takes so long.
BEGIN = 90.0
#: Seconds within which all resources of a run must be released.
CLEAN = 12.0


class Stage:
    """One session and its watch.

    Args:
        token: token of the session's processes.
        folder: folder for all files of the session.
        limit: seconds after a fault, or after its end, within which the run must end.
    """

    def __init__(self, token, folder, limit):
        self._limit = limit
        self._token = token
        self._folder = folder
        self._homes = {}
        self._watch = None
        self._session = make_session(token, folder)
        wait_ready(self._session, token)

    def run(self, plan, mutation=None):
        """Run a plan; return its result as values that JSON can hold."""
        found = self._run(plan, mutation)
        if found["outcome"] == "missed" and plan.kind != "none":
            found = self._run(plan.at_once(), mutation)
        return found

    def stop(self):
        """Stop the session; return a line for each process that is left."""
        self._session.stop()
        return [f"{p.kind} {p.pid}" for p in self._left_alive()]

    def _left_alive(self):
        end = time.monotonic() + CLEAN
        while True:
            left = [p for p in remains.of(self._token) if p.kind in {"worker", "daemon"}]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)

    def _run(self, plan, mutation):
        asked = time.monotonic()
        wait_ready(self._session, self._token)
        home = self._home(plan.consumers)
        folder = self._folder / f"run-{plan.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        watch = self._watching()
        watch.begin(plan)
        waited = time.monotonic() - asked
        action = _Action(self._session, plan, folder, mutation)
        fault = Fault(plan, watch, self._token, folder, action.ended.is_set)
        action.start()
        struck = plan.kind != "none" and fault.happen()
        limit = fault.until + self._limit if struck else action.started + BEGIN
        if not action.ended.wait(max(0.0, limit - time.monotonic())):
            stacks = self._folder / f"hang-{plan.seed}"
            remains.write_stacks(self._token, stacks)
            told = watch.story.cause
            so_far = f"told so far: [{told.code}] {told.summary}" if told else "no cause yet"
            detail = f"no end {self._limit:g} s after the fault, {so_far}; stacks in {stacks}"
            return _result(plan, watch.story, fault, action, "hang", detail)
        if struck or plan.kind == "none":
            outcome, detail = _verdict(plan, action, home)
        else:
            outcome, detail = "missed", action.error or ""
        fault.undo()
        watch.end()
        left = self._left()
        if left and outcome in {"rows", "error"}:
            outcome, detail = "left", "; ".join(left)
        shutil.rmtree(folder, ignore_errors=True)
        around = {"ready_s": round(waited, 3), "clean_s": _seconds(action.at, time.monotonic())}
        return _result(plan, watch.story, fault, action, outcome, detail) | around

    def _watching(self):
        from headgate.spark.driver import application

        owner = application.of(self._session.sparkContext)
        if self._watch is None or not self._watch.is_of(owner):
            self._watch = Watch(owner)
        return self._watch

    def _home(self, consumers):
        if consumers not in self._homes:
            self._homes[consumers] = job.places(self._session, consumers)
        return self._homes[consumers]

    def _left(self):
        end = time.monotonic() + CLEAN
        while True:
            jobs = list(self._session.sparkContext.statusTracker().getActiveJobsIds())
            left = self._watch.remains() + [f"{len(jobs)} jobs"] * bool(jobs)
            left += _threads() + remains.left_behind(self._token)
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)


class _Action:
    """The action of a run, in a thread of its own."""

    def __init__(self, session, plan, folder, mutation):
        self._out = job.build(session, plan, folder, mutation)
        self._thread = threading.Thread(target=self._act, name="chaos-action", daemon=True)
        self.ended = threading.Event()
        self.started = self.at = time.monotonic()
        self.table = self.error = None

    def start(self):
        self.started = time.monotonic()
        self._thread.start()

    def _act(self):
        try:
            self.table = self._out.toArrow()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the user sees
            self.error = str(error) or "".join(traceback.format_exception(error))
        self.at = time.monotonic()
        self.ended.set()


def _verdict(plan, action, home):
    if action.error is None:
        wrong = job.wrong_rows(plan, action.table, home)
        return ("wrong", wrong) if wrong else ("rows", "")
    error = said(action.error)
    wrong = misfit(plan, error)
    words = f"[{error.code}] {error.summary}"
    return ("wrong", f"{wrong}: {words}\n{action.error[:4000]}") if wrong else ("error", words)


def _result(plan, story, fault, action, outcome, detail):
    since = fault.at
    ended = action.at if action.ended.is_set() else None
    return {
        "seed": plan.seed,
        "job": plan.job,
        "kind": plan.kind,
        "fault": plan.fault,
        "victim": fault.victim,
        "outcome": outcome,
        "detail": detail,
        "fault_s": _seconds(action.started, since),
        "detection_s": _seconds(since, story.noticed),
        "verdict_s": _seconds(since, ended),
        "seconds": _seconds(action.started, ended),
        "disturbed": story.cause is not None,
        # An error that only the log has must name the true cause as well.
        "blames": misfit(plan, story.cause) if story.cause else "",
        "epochs": story.epochs,
        "causes": [list(cause) for cause in story.causes],
    }


def _seconds(start, end):
    return None if start is None or end is None else round(end - start, 3)


def _threads():
    wanted = ("headgate-job", "headgate-reduce", "headgate-control", "chaos-relay")
    return [t.name for t in threading.enumerate() if t.name.startswith(wanted)]
