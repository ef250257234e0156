"""One fault: waits for its moment, selects a victim, strikes, and cleans up afterwards."""

import signal
import time

from tests.soak.chaos import remains
from tests.soak.chaos.plan import PAUSE

_LOOK = 0.005
#: Seconds that Spark waits for the process of a lost executor to end before it starts another one.
#: A stopped process never ends, so the slots for a new attempt may be missing until then.
_REPLACED = 10.0


class Fault:
    """The fault of one run, driven by the thread that calls :meth:`happen`.

    Args:
        plan: plan of the run.
        watch: watch of the application.
        token: token of the application's processes.
        folder: folder in which tasks record their progress.
        is_over: returns True once the action has ended.
    """

    def __init__(self, plan, watch, token, folder, is_over):
        self._plan = plan
        self._watch = watch
        self._token = token
        self._folder = folder
        self._is_over = is_over
        self._stopped = []
        #: Monotonic seconds at which the fault struck; None before that.
        self.at = None
        #: End of the fault in monotonic seconds, from which the limit of the run counts.
        self.until = None
        self.victim = ""

    def happen(self):
        """Wait for the moment, then strike the first victim. Return True if there was one."""
        started = time.monotonic()
        while not self._is_moment(started):
            if self._is_over():
                return False
            time.sleep(_LOOK)
        while not self._strike():
            if self._is_over():
                return False
            time.sleep(_LOOK)
        self.until = self.at
        if self._plan.kind == "pause":
            while time.monotonic() < self.at + PAUSE:
                time.sleep(_LOOK)
            self._go_on()
            self.until = time.monotonic()
        elif (self._plan.kind, self._plan.victim) == ("stop", "executor"):
            self.until += _REPLACED
        return True

    def undo(self):
        """Kill the processes that were stopped for good."""
        for process in self._stopped:
            process.signal(signal.SIGKILL)

    def _go_on(self):
        for process in self._stopped:
            process.signal(signal.SIGCONT)
        self._stopped.clear()

    def _is_moment(self, started):
        moment = self._plan.moment
        match moment.kind:
            case "time":
                return time.monotonic() - started >= moment.at / 1000
            case "message":
                return self._watch.reached.is_set()
            case _:
                return (self._folder / moment.name).exists()

    def _strike(self):
        action, _, what = self._plan.kind.partition(" ")
        match action:
            case "kill":
                return self._signal(signal.SIGKILL)
            case "pause" | "stop":
                return self._signal(signal.SIGSTOP)
            case _:
                return self._damage(action, what)

    def _signal(self, number):
        victim = self._choose(self._victims())
        if victim is None:
            return False
        if not victim.signal(number):
            return False
        self.at = time.monotonic()
        self.victim = f"{victim.kind} {victim.pid}"
        if number == signal.SIGSTOP:
            self._stopped.append(victim)
        return True

    def _victims(self):
        role = self._plan.victim
        if role in {"producer", "consumer"}:
            return self._watch.processes(role, self._token)
        return [p for p in remains.of(self._token) if p.kind == role]

    def _damage(self, action, what):
        watch = self._watch
        role = self._plan.victim
        pairs = watch.data_pairs() if what == "data" else watch.control_pairs(role)
        pair = self._choose(pairs)
        if pair is None:
            return False
        self.victim = f"connection {pair.port}"
        if action == "cut":
            if not pair.cut(self._plan.manner):
                return False
        else:
            if not pair.flip(self._plan.manner, self._plan.skip, self._plan.bit):
                return False
            while pair.damaged is None:
                if self._is_over() or not pair.is_open:
                    return False
                time.sleep(_LOOK)
        self.at = pair.damaged
        return True

    def _choose(self, found):
        return found[int(self._plan.which * len(found))] if found else None
