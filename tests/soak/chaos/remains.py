"""The processes of one chaos session, found by their token, and the check for leftovers of them."""

import contextlib
import faulthandler
import shutil
from pathlib import Path

from tests.kit import processes, resources, stacks

#: Variable that every process of a session inherits.
TOKEN = "HEADGATE_CHAOS"


def of(token):
    """Return all live processes of a session."""
    return processes.marked(token, TOKEN)


def kill_all(token):
    """Kill every process of a session until none is left."""
    processes.kill_all(token, TOKEN)


def owner_of_port(port, peer, candidates):
    """Return the process that holds the connection from ``port`` to ``peer``, or None."""
    wanted = resources.connected(port, peer)
    return next((p for p in candidates if wanted & resources.look(p.pid).sockets), None)


def left_behind(token):
    """Return a line for each leftover between two runs.

    Idle workers of a live executor may stay, but without threads of Headgate, without listening
    sockets, and not stopped.
    """
    found = of(token)
    folders = {p.folder for p in found if p.kind == "executor"}
    ports = resources.listening()
    wrong = []
    for process in found:
        what = f"{process.kind} {process.pid}"
        if process.is_stopped:
            wrong.append(f"{what} is stopped")
        if process.kind not in {"worker", "daemon"}:
            continue
        if process.folder not in folders:
            wrong.append(f"{what} has outlived its executor")
        held = resources.look(process.pid)
        names = [name for name in held.threads if name.startswith("headgate")]
        wrong += [f"{what} has a thread {name}" for name in names]
        if process.kind == "worker" and held.sockets & ports:
            wrong.append(f"{what} listens on a port")
    return wrong


def write_stacks(token, folder):
    """Write the stacks of this process and of a session's processes, and the executors' logs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "driver.txt").open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    found = of(token)
    (folder / "processes.txt").write_text(stacks.of_processes(found))
    for place in {p.folder for p in found if p.kind == "executor"}:
        with contextlib.suppress(OSError):  # there may be no log
            shutil.copy(Path(place) / "stderr", folder / f"executor-{Path(place).name}.stderr.txt")
