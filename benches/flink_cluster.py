"""Flink's side of a bench: a cluster of processes on this machine, and our Java program that runs on it.

The jars come from ``apache-flink-libraries``. There is a JobManager and TaskManagers with one slot each. The
program has three TaskManagers, so the source and both sinks have a process of their own, and every record
crosses a socket.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
PROGRAM = Path(__file__).parent / "flink" / "KeyedExchange.java"
#: Time limits in seconds: for all TaskManagers to register, and for a job.
START, JOB = 120.0, 300.0
#: The JVM options that Flink's scripts set on Java 17.
OPENED = (
    "java.base/java.lang",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/sun.net.util",
)
CONFIGURATION = """\
jobmanager.rpc.address: {host}
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: {host}
rest.address: {host}
rest.bind-address: {host}
rest.port: {rest}
taskmanager.host: {host}
taskmanager.bind-host: {host}
taskmanager.numberOfTaskSlots: 1
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
taskmanager.memory.task.heap.size: 384m
taskmanager.memory.task.off-heap.size: 0
taskmanager.memory.managed.size: {managed}
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
blob.storage.directory: {folder}
io.tmp.dirs: {folder}
execution.checkpointing.dir: file://{folder}
"""


class FlinkError(RuntimeError):
    """Flink is not installed, or a job of it failed."""


def libraries() -> Path | None:
    """Return the folder of Flink's jars, if they are installed."""
    found = importlib.util.find_spec("pyflink")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    jars = [Path(folder) / "lib" for folder in folders if (Path(folder) / "lib").is_dir()]
    return jars[0] if jars else None


class Program:
    """Our Java program, connected to a running cluster."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def seconds(self, kind: str, number: int) -> float:
        """Run a job with ``number`` records of ``"longs"`` or ``"rows"``; return its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {number}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2 or int(answer[1]) != number:
            raise FlinkError(f"{kind}: {answer} of {number} records\n{tail(self._log)}")
        return int(answer[0]) / 1000


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    folder: Path
    """Holds the logs, and goes with the cluster."""
    rest: int
    """The port of the JobManager's REST interface, to which programs submit jobs."""
    task_managers: tuple[int, ...]
    """The process ids of the TaskManagers."""

    def logs(self) -> str:
        """Return the last lines of all logs."""
        return "\n".join(tail(path) for path in sorted(self.folder.glob("*.log")))


@contextmanager
def cluster(
    classpath: Sequence[Path],
    task_managers: int,
    *,
    managed: str = "0",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Run a cluster until the block ends.

    Args:
        classpath: Flink's jars.
        task_managers: number of TaskManagers, of one slot each.
        managed: managed memory of each, as Flink writes sizes.
        environment: variables of the processes beside those of this one.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-flink-")))
        rest = _free_port()
        configuration = CONFIGURATION.format(
            host=HOST, rpc=_free_port(), rest=rest, folder=folder, managed=managed
        )
        (folder / "config.yaml").write_text(configuration, encoding="utf-8")
        package = "org.apache.flink.runtime"
        entries = [
            f"{package}.entrypoint.StandaloneSessionClusterEntrypoint",
            *[f"{package}.taskexecutor.TaskManagerRunner"] * task_managers,
        ]
        started = []
        for number, entry in enumerate(entries):
            command = _java(classpath, ("-Xmx640m", "-XX:MaxDirectMemorySize=320m"))
            command += [entry, "--configDir", str(folder)]
            running = _running(command, folder / f"{number}.log", environment)
            started.append(stack.enter_context(running).pid)
        found = Cluster(folder, rest, tuple(started[1:]))
        _wait_for_task_managers(found)
        yield found


@contextmanager
def program(jars: Path) -> Iterator[Program]:
    """Run a cluster and the program until the block ends."""
    with cluster([jars / "*"], 3) as found:
        jar = compiled([PROGRAM], jars, found.folder)
        log = found.folder / "program.log"
        command = _java([jars / "*", jar], ("-Xmx256m",))
        with _running([*command, PROGRAM.stem, str(found.rest), str(jar)], log) as client:
            yield Program(client, log)


def _java(classpath: Sequence[Path], options: tuple[str, ...]) -> list[str]:
    opened = [f"--add-opens={name}=ALL-UNNAMED" for name in OPENED]
    return ["java", *options, *opened, "-cp", ":".join(map(str, classpath))]


@contextmanager
def _running(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe if log.stem == "program" else file,
            stderr=file,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # A TaskManager's Python workers are in its process group.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def compiled(sources: Sequence[Path], jars: Path, folder: Path) -> Path:
    """Compile Java files against the jars; return the jar of their classes, in the folder."""
    if shutil.which("javac") is None:
        raise FlinkError("no javac found: apt-get install openjdk-17-jdk-headless")
    classes = folder / "classes"
    command = ["javac", "-nowarn", "-cp", str(jars / "*"), "-d", str(classes), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FlinkError(f"{sources[0].name} does not compile:\n{done.stderr}")
    jar = folder / "program.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.iterdir()):
            archive.write(path, path.name)
    return jar


def _wait_for_task_managers(found: Cluster) -> None:
    number = len(found.task_managers)
    deadline = time.monotonic() + START
    url = f"http://{HOST}:{found.rest}/overview"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if f'"taskmanagers":{number}' in answer.read().decode():
                    return
        except OSError:
            pass  # not yet
        time.sleep(0.2)
    raise FlinkError(f"no {number} TaskManagers after {START:.0f} s\n{found.logs()}")


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
