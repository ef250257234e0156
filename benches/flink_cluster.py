"""Flink's side of a bench: a cluster of processes on this machine, and our Java program that runs on it.

The jars come from ``apache-flink-libraries``. There is a JobManager and three TaskManagers with one slot
each, so the source and both sinks have a process of their own, and every record crosses a socket.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOST = "127.0.0.1"
TASK_MANAGERS = 3
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
taskmanager.memory.managed.size: 0
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
            raise FlinkError(f"{kind}: {answer} of {number} records\n{_tail(self._log)}")
        return int(answer[0]) / 1000


@contextmanager
def program(jars: Path) -> Iterator[Program]:
    """Run a cluster and the program until the block ends."""
    if shutil.which("javac") is None:
        raise FlinkError("no javac found: apt-get install openjdk-17-jdk-headless")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-flink-")))
        rest = _free_port()
        configuration = CONFIGURATION.format(host=HOST, rpc=_free_port(), rest=rest, folder=folder)
        (folder / "config.yaml").write_text(configuration, encoding="utf-8")
        package = "org.apache.flink.runtime"
        entries = [
            f"{package}.entrypoint.StandaloneSessionClusterEntrypoint",
            *[f"{package}.taskexecutor.TaskManagerRunner"] * TASK_MANAGERS,
        ]
        for number, entry in enumerate(entries):
            command = _java(jars, ("-Xmx640m", "-XX:MaxDirectMemorySize=320m"))
            log = folder / f"{number}.log"
            stack.enter_context(_running([*command, entry, "--configDir", str(folder)], log))
        _wait_for_task_managers(rest, folder)
        jar = _compiled(jars, folder)
        log = folder / "program.log"
        command = _java(jars, ("-Xmx256m",), jar)
        client = stack.enter_context(_running([*command, PROGRAM.stem, str(rest), str(jar)], log))
        yield Program(client, log)


def _java(jars: Path, options: tuple[str, ...], *more: Path) -> list[str]:
    opened = [f"--add-opens={name}=ALL-UNNAMED" for name in OPENED]
    path = ":".join([str(jars / "*"), *map(str, more)])
    return ["java", *options, *opened, "-cp", path]


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe if log.stem == "program" else file,
            stderr=file,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _compiled(jars: Path, folder: Path) -> Path:
    classes = folder / "classes"
    command = ["javac", "-nowarn", "-cp", str(jars / "*"), "-d", str(classes), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FlinkError(f"{PROGRAM.name} does not compile:\n{done.stderr}")
    jar = folder / "program.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.iterdir()):
            archive.write(path, path.name)
    return jar


def _wait_for_task_managers(port: int, folder: Path) -> None:
    deadline = time.monotonic() + START
    url = f"http://{HOST}:{port}/overview"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if f'"taskmanagers":{TASK_MANAGERS}' in answer.read().decode():
                    return
        except OSError:
            pass  # not yet
        time.sleep(0.2)
    logs = "\n".join(_tail(path) for path in sorted(folder.glob("*.log")))
    raise FlinkError(f"no {TASK_MANAGERS} TaskManagers after {START:.0f} s\n{logs}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
