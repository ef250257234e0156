"""Spark's standalone mode on the hosts of a network: a master, workers, and a driver's host.

All processes get a new environment, so that workers do not see the Python of the tests. They have
Headgate only from the archive.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.kit.namespaces import Network

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RECIPE = ROOT / "docs" / "clusters.md"

MASTER, DRIVER = "master", "driver"
WORKERS = ("worker-1", "worker-2")
#: Slots of a worker, enough for one worker to continue the job of both.
CORES = 3
#: Seconds within which a process of Spark must be up.
UP = 120.0
#: Options for JVMs that live for a minute or two on a machine with few cores.
JAVA = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def spark_home() -> Path:
    """Return the folder in which pip installed Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def recipe() -> dict[str, str]:
    """Return the configuration that docs/clusters.md recommends for a packed environment."""
    blocks = re.findall(r"^```properties\n(.*?)^```$", RECIPE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "spark.archives" in block)
    return dict(line.split(maxsplit=1) for line in block.splitlines() if line.strip())


class Cluster:
    """A running master and workers, and files for all hosts.

    Args:
        network: network with the hosts.
        folder: folder for all files.
        archive: the packed environment.
    """

    def __init__(self, network: Network, folder: Path, archive: Path) -> None:
        self.network = network
        self.folder = folder
        self._archive = archive
        self.url = f"spark://{network.addresses[MASTER]}:7077"

    def start(self) -> None:
        """Start master and workers; return once the master knows the workers."""
        address = self.network.addresses
        words = ["--host", address[MASTER], "--port", "7077"]
        master = self._start_daemon(MASTER, "master.Master", words)
        self._wait_for(MASTER, master, "I have been elected leader")
        workers = {}
        for worker in WORKERS:
            words = ["--host", address[worker], "--cores", str(CORES), "--memory", "1g"]
            words += ["--work-dir", str(self.work(worker)), self.url]
            workers[worker] = self._start_daemon(worker, "worker.Worker", words)
        for worker, process in workers.items():
            self._wait_for(worker, process, "Successfully registered with master")

    def work(self, worker: str) -> Path:
        """Return the folder in which a worker runs its executors."""
        return self.folder / worker / "work"

    def logs(self, worker: str) -> str:
        """Return the logs of a worker's executors."""
        files = sorted(self.work(worker).glob("app-*/*/stderr"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def environ(self, host: str) -> dict[str, str]:
        """Return the environment variables of a host's processes, none of them for Python."""
        kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
        bin_of_tests = str(Path(sys.executable).parent)
        path = [p for p in os.environ["PATH"].split(":") if p != bin_of_tests]
        temporary = self._folder(host, "tmp")
        java = f"-Djava.io.tmpdir={temporary} {JAVA}"
        return kept | {
            "PATH": ":".join(path),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": self.network.addresses[host],
            "SPARK_LOCAL_DIRS": str(self._folder(host, "local")),
            "SPARK_CONF_DIR": str(self._folder(host, "conf")),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java,
            "TMPDIR": str(temporary),
        }

    def configure(self, **more: str) -> dict[str, str]:
        """Write the recipe's ``spark-defaults.conf`` for the driver; return its environment."""
        names = {"MASTER_HOST": self.network.addresses[MASTER]}
        names["DRIVER_HOST"] = self.network.addresses[DRIVER]
        names["environment.tar.gz"] = str(self._archive)
        conf = recipe()
        for name, value in names.items():
            conf = {key: text.replace(name, value) for key, text in conf.items()}
        conf["spark.pyspark.driver.python"] = sys.executable
        assert conf["spark.master"] == self.url
        java = f"-Djava.io.tmpdir={self._folder('programs', 'tmp')} {JAVA}"
        conf |= {
            "spark.cores.max": str(CORES * len(WORKERS)),
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            **more,
        }
        text = "".join(f"{key} {value}\n" for key, value in conf.items())
        environ = self.environ(DRIVER)
        Path(environ["SPARK_CONF_DIR"], "spark-defaults.conf").write_text(text)
        # The driver uses the Python of the tests, as a user's notebook has Headgate installed.
        environ["PYTHONPATH"] = str(ROOT / "python")
        return environ

    def run(self, command: list[str], timeout: float) -> tuple[int, str]:
        """Run a Python program on the driver's host; return its status and its output."""
        environ = self.configure() | {"PYSPARK_PYTHON": recipe()["spark.pyspark.python"]}
        log = self.folder / DRIVER / "program.log"
        with log.open("w") as file:
            process = self.network.start(
                DRIVER,
                [sys.executable, *command],
                env=environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder(DRIVER, "here"),
            )
            status = process.wait(timeout)
        return status, log.read_text()

    def _folder(self, host: str, name: str) -> Path:
        folder = self.folder / host / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _start_daemon(self, host: str, name: str, words: list[str]) -> subprocess.Popen:
        log = self._log(host)
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        with log.open("w") as file:
            return self.network.start(
                host,
                [*command, "--webui-port", "0", *words],
                env=self.environ(host),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=log.parent,
            )

    def _log(self, host: str) -> Path:
        return self._folder(host, "logs") / "daemon"

    def _wait_for(self, host: str, process: subprocess.Popen, sign: str) -> None:
        log, end = self._log(host), time.monotonic() + UP
        while sign not in log.read_text():
            assert process.poll() is None, f"{host} ended: {log.read_text()}"
            assert time.monotonic() < end, f"{host} is not up after {UP} s: {log.read_text()}"
            time.sleep(0.1)


class Session:
    """A program on the driver's host, started by spark-submit, that runs commands.

    Commands go over a Unix socket, which works across network namespaces.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._network = cluster.network
        self._log = cluster.folder / DRIVER / "session.log"
        place = cluster.folder / "session"
        listener = socket.socket(socket.AF_UNIX)
        environ = cluster.configure()
        submit = [str(spark_home() / "bin" / "spark-submit"), str(HERE / "driver_program.py")]
        with listener, self._log.open("w") as file:
            listener.bind(str(place))
            listener.listen(1)
            listener.settimeout(1.0)
            self._process = cluster.network.start(
                DRIVER,
                [*submit, str(place)],
                env=environ,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=cluster.folder,
            )
            self._sock = self._accept(listener)
        self._rest = b""
        place.unlink()

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a command. :meth:`hear` returns the answers."""
        self._sock.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")

    def hear(self, timeout: float, *, may_be_late: bool = False) -> dict[str, Any] | None:
        """Return the next answer, or None if it is late and ``may_be_late`` is true."""
        end = time.monotonic() + timeout
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                assert may_be_late, f"no answer in {timeout} s; {self._tail()}"
                return None
            data = self._sock.recv(65536)
            assert data, f"the program has ended; {self._tail()}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, timeout: float = 90, **arguments: Any) -> dict[str, Any]:
        """Send a command and return the answer."""
        self.tell(do, **arguments)
        answer = self.hear(timeout)
        assert answer is not None
        return answer

    def close(self) -> None:
        """End the program."""
        self._sock.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:  # it runs a command whose result is not needed
            self._network.kill(DRIVER)
            self._process.wait(20)

    def _accept(self, listener: socket.socket) -> socket.socket:
        end = time.monotonic() + UP
        while True:
            assert time.monotonic() < end, f"the program does not start; {self._tail()}"
            assert self._process.poll() is None, f"the program has ended; {self._tail()}"
            try:
                return listener.accept()[0]
            except TimeoutError:
                continue

    def _tail(self) -> str:
        return "its log ends with\n" + "\n".join(self._log.read_text().splitlines()[-60:])
