"""The body of a task that exchanges rows with those on the other executors, as the driver tells it to.

It uses partitions, gates and options as tasks of an exchange do, so that the links which are measured are those that an
exchange would use.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import headgate as hg
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Message
from headgate.errors import CoordinatorError, HeadgateError
from headgate.observe.trace import IN_DOCTOR, lines
from headgate.spark.doctor.probe import executor_id
from headgate.spark.doctor.wire import ANSWERS, CODEC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.control.address import CoordinatorAddress
    from headgate.options import EnvironmentOptions

#: Bytes of one emitted batch.
BATCH: Final = 1 << 20
#: Connections that are tried at the same time.
_AT_ONCE: Final = 16
#: Seconds for one connection.
_CONNECT: Final = 5.0
#: Seconds in which the driver must say something, however many pairs there are.
_SILENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class PeerTask:
    """A task of the doctor.

    Attributes:
        address: where the doctor is.
        options: of the environments of an exchange.
        schema: of the rows.
    """

    address: CoordinatorAddress
    options: EnvironmentOptions
    schema: pa.Schema


def run(task: PeerTask, numbers: Iterable[int]) -> Iterator[bytes]:
    """Do what the driver says until it closes the connection; yield nothing."""
    from pyspark import TaskContext  # noqa: PLC0415 - pyspark only where Spark is

    (number,) = numbers
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return  # the driver knows that the first attempt has ended
    connection = WorkerConnection(task.address, CODEC)
    with contextlib.closing(connection.sock):
        # On the way to the driver, as tasks of an exchange listen.
        address = connection.sock.getsockname()[0]
        options: EnvironmentOptions = {**task.options, "listen": f"{address}:0"}
        secret, exchange = task.address.secret, task.address.exchange_id
        with (
            hg.ShuffleEnvironment(secret=secret, exchange_id=exchange, **options) as environment,
            contextlib.suppress(CoordinatorError),  # the driver has closed it: it is done
        ):
            _Peer(task, connection, environment).serve(number)
    yield from ()


class _Peer:
    def __init__(
        self,
        task: PeerTask,
        connection: WorkerConnection,
        environment: hg.ShuffleEnvironment,
    ) -> None:
        self._schema = task.schema
        self._connection = connection
        self._environment = environment

    def serve(self, number: int) -> None:
        host, port = self._environment.address
        here = {
            "number": number,
            "executor": executor_id() or "",
            "host": host,
            "port": port,
            "process": self._environment.process_id.hex(),
        }
        self._connection.send(Message("HERE", here))
        while self._connection.is_readable(_SILENCE):
            for question in self._connection.receive():
                answer = Message(ANSWERS[question.kind], self._answer(question))
                self._connection.send(answer)

    def _answer(self, question: Message) -> dict[str, Any]:
        if question.kind == "DIAL":
            at, begin = time.time(), time.monotonic()
            errors = _dialed(question["peers"], begin + question["seconds"])
            return {"errors": errors, "at": at, "took": time.monotonic() - begin}
        measured = self._exchanged(question)
        nothing = {"rate": None, "link": "", "error": "", "code": ""}
        return {**nothing, **measured, "trace": lines(IN_DOCTOR)}

    def _exchanged(self, message: Message) -> dict[str, Any]:
        """Write the rows for one peer in a thread while reading those of another one."""
        answer: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            if message["serve"]:
                partition = self._environment.create_result_partition(
                    1, schema=self._schema, partition_id=bytes.fromhex(message["serve"])
                )
                stack.callback(partition.close)
                writer = threading.Thread(
                    target=self._write,
                    args=(partition, message),
                    name="headgate-doctor-write",
                    daemon=True,
                )
                stack.callback(writer.join)
                stack.callback(
                    self._give_up, partition, writer, time.monotonic() + message["seconds"]
                )
                writer.start()
            if message["read"]:
                answer = self._read(message)
        return answer

    @staticmethod
    def _give_up(partition: hg.ResultPartition, writer: threading.Thread, deadline: float) -> None:
        writer.join(max(0.0, deadline - time.monotonic()))
        if writer.is_alive():
            partition.fail("the doctor's time for this pair is over")

    def _write(self, partition: hg.ResultPartition, message: Message) -> None:
        batch = _batch(self._schema)
        # The reader has the same error, and reports it.
        with contextlib.suppress(HeadgateError), hg.RecordWriter(partition) as writer:
            for _ in range(max(1, message["size"] // BATCH)):
                writer.emit(batch)
            writer.finish()
            partition.wait_consumed(message["seconds"])

    def _read(self, message: Message) -> dict[str, Any]:
        host, port, process, partition = message["read"]
        address = hg.ChannelAddress(host, port, bytes.fromhex(partition), 0, bytes.fromhex(process))
        start, link, size, first = time.monotonic(), "", 0, None
        late = threading.Event()
        gate = self._environment.create_input_gate([address], schema=self._schema)

        def stop() -> None:
            late.set()
            gate.fail("the doctor's time for this pair is over")

        timer = threading.Timer(message["seconds"], stop)
        timer.daemon = True
        timer.start()
        try:
            for batch in hg.RecordReader(gate):
                size += batch.nbytes
                if first is None:
                    first = time.monotonic(), size
                    link = self._link(host)
        except HeadgateError as error:
            if not late.is_set():
                return {"error": error.summary, "code": error.code}
        finally:
            timer.cancel()
            timer.join()
            gate.close()
        end = time.monotonic()
        if first is None:
            return {}
        # Without the wait for the peer, if there is enough behind the first batch.
        if size > 2 * first[1] and end - first[0] > 1e-3:
            return {"rate": (size - first[1]) / (end - first[0]), "link": link}
        return {"rate": size / max(1e-6, end - start), "link": link}

    def _link(self, host: str) -> str:
        is_local = host == self._environment.address[0]
        return (
            "same_host"
            if is_local and self._environment.stats()["connections"]["same_host"]
            else "tcp"
        )


def _batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of random numbers, which no codec makes smaller."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    column = pa.Array.from_buffers(pa.int64(), BATCH // 8, [None, pa.py_buffer(os.urandom(BATCH))])
    return pa.RecordBatch.from_arrays([column], schema=schema)


def _dialed(peers: list[list[Any]], deadline: float) -> list[list[Any]]:
    """Connect to each peer and hang up; return the errors with the numbers of the peers."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headgate-doctor-dial") as pool:
        errors = pool.map(lambda peer: _dial_error(peer[1], peer[2], deadline), peers)
        return [[peer[0], error] for peer, error in zip(peers, errors, strict=True) if error]


def _dial_error(host: str, port: int, deadline: float) -> str:
    """Return why a peer cannot be reached; empty if it can, or if there was no time to try."""
    left = deadline - time.monotonic()
    if left <= 0:
        return ""
    try:
        socket.create_connection((host, port), min(_CONNECT, left)).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""
