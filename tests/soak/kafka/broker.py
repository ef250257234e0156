"""A real broker of Kafka in KRaft mode: one process, which is controller and broker, and its folder."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

#: Seconds for a start and for an answer.
START, ANSWER = 200.0, 60.0
#: Clients of tests, which are cut off on purpose, log nothing.
QUIET = {"log_level": 0}
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={folder}/data
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
"""


class Broker:
    """A broker that runs while its block does."""

    def __init__(self, jars):
        self._jars = jars
        self._stack = contextlib.ExitStack()
        self._process = None
        self._readers = {}

    def __enter__(self):
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-kafka-"))
        self.folder = Path(folder)
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        text = PROPERTIES.format(port=port, controller=controller, folder=folder)
        self._file = self.folder / "server.properties"
        self._file.write_text(text, encoding="utf-8")
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._stack.callback(self.kill)
        try:
            command = self._java("kafka.tools.StorageTool", "format", "-t", name, "-c")
            subprocess.run([*command, str(self._file)], check=True, capture_output=True)
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self.admin = None
        self._stack.close()

    def start(self):
        """Start the process and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            # A test that is killed leaves no broker: the kernel kills it with its parent.
            command = [
                "setpriv",
                "--pdeathsig",
                "KILL",
                *self._java("kafka.Kafka"),
                str(self._file),
            ]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self.admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        deadline = time.monotonic() + START
        while True:
            with contextlib.suppress(KafkaException):
                if self.admin.list_topics(timeout=1).brokers:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                raise AssertionError(f"the broker did not start:\n{log[-4000:]}")

    def kill(self):
        """Kill the process, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def create(self, partitions=3, **config):
        """Create a topic; return its name."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        texts = {key.replace("_", "."): str(value) for key, value in config.items()}
        answers = self.admin.create_topics([NewTopic(name, partitions, 1, config=texts)])
        answers[name].result(ANSWER)
        return name

    def producer(self, **config):
        texts = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.servers, **QUIET, **texts})

    def fill(self, topic, start, stop, partitions=3, producer=None):
        """Write the numbers as texts, in turn into the partitions, at the times 1,000,000 + n."""
        mine = producer or self.producer()
        for n in range(start, stop):
            place = {"partition": n % partitions, "timestamp": 1_000_000 + n}
            mine.produce(topic, str(n).encode(), **place)
            if n % 10_000 == 0:
                mine.poll(0)
        assert mine.flush(ANSWER) == 0

    def rows(self, topic, isolation="read_committed"):
        """Return the values in a topic, as far as readers of this isolation see them."""
        consumer = self._readers.get(isolation)
        if consumer is None:
            settings = {
                "bootstrap.servers": self.servers,
                "group.id": "look",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
            }
            consumer = self._readers[isolation] = Consumer({**settings, **QUIET})
            self._stack.callback(consumer.close)
        partitions = consumer.list_topics(topic, ANSWER).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, left = [], len(partitions)
        while left:
            first = consumer.poll(1)
            for message in [] if first is None else [first, *consumer.consume(10_000, 0)]:
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    left -= 1
        consumer.unassign()
        return found

    def _java(self, *words):
        java = (
            str(Path(os.environ["JAVA_HOME"]) / "bin/java") if "JAVA_HOME" in os.environ else "java"
        )
        return [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self._jars}/*",
            *words,
        ]


def free_ports(count):
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
