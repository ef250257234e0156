"""Programs of others that call the service, each in an environment of its own; see ``program.py``.

The first argument is the program. Its order has the ``url`` of the service, ``rows``, the calls at a time in a process,
``in_flight``, the ``folder`` for rows and for the ids of processes that call, and what a cluster needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benches.calls.client import Client, by_hand, leave_pid

#: Partitions of Spark's rows: a task that is lost loses all of one.
PARTITIONS = 8
PROCESSES = 2


def when_told() -> None:
    print("READY", flush=True)
    sys.stdin.readline()


def spark(order: dict[str, Any]) -> None:
    """Calls by hand on two slots; a task is tried four times, as on a cluster."""
    from benches.calls import client
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    cloudpickle.register_pickle_by_value(client)
    builder = SparkSession.builder.master(f"local[{PROCESSES},4]").appName("calls by hand")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.range(PROCESSES, numPartitions=PROCESSES).mapInArrow(
        lambda batches: batches, "id bigint"
    ).collect()
    when_told()
    calls = by_hand(order["url"], order["in_flight"], order["folder"] + "/pids")
    numbers = session.range(0, order["rows"], 1, PARTITIONS)
    numbers.mapInArrow(calls, "id bigint").write.parquet(order["folder"] + "/out")
    print("DONE", flush=True)
    session.stop()


class Asker:
    """Calls of one process of Ray."""

    def __init__(self, url: str, most: int, pids: str) -> None:
        leave_pid(pids)
        self._client, self._room = Client(url), asyncio.Semaphore(most)

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        async def ask(number: int) -> int:
            async with self._room:
                return await self._client.ask(number)

        return {"id": await asyncio.gather(*(ask(int(number)) for number in batch["id"]))}


def ray(order: dict[str, Any]) -> None:
    """Ray Data: asynchronous batches in two actors."""
    import ray
    import ray.data

    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    # Of actors too, and not before a restarted one has a core.
    ray.init(
        address="local",
        num_cpus=PROCESSES + 1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=200 * 2**20,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    when_told()
    answers = ray.data.range(order["rows"]).map_batches(
        Asker,
        fn_constructor_args=(order["url"], order["in_flight"], order["folder"] + "/pids"),
        batch_size=order["in_flight"],
        compute=ray.data.ActorPoolStrategy(size=PROCESSES),
    )
    answers.write_parquet(order["folder"] + "/out")
    print("DONE", flush=True)
    ray.shutdown()


def daft(order: dict[str, Any]) -> None:
    """Daft: an asynchronous function, all in this process."""
    import daft

    most = PROCESSES * order["in_flight"]
    client, room = Client(order["url"]), asyncio.Semaphore(most)

    @daft.func(max_concurrency=most)
    async def ask(number: int) -> int:
        # Daft begins more calls at a time than max_concurrency says, and the files of the process run out.
        async with room:
            return await client.ask(number)

    leave_pid(order["folder"] + "/pids")
    when_told()
    numbers = daft.range(order["rows"])
    numbers.select(ask(numbers["id"]).alias("id")).write_parquet(order["folder"] + "/out")
    print("DONE", flush=True)


def pyflink(order: dict[str, Any]) -> None:
    """PyFlink: AsyncDataStream in two tasks, whose Python runs in processes of its own, and checkpoints."""
    from pyflink.common import Configuration, Time, Types, WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.async_data_stream import AsyncDataStream
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource
    from pyflink.datastream.functions import AsyncFunction, RuntimeContext
    from pyflink.java_gateway import get_gateway
    from pyflink.util.java_utils import to_jarray

    class Ask(AsyncFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            leave_pid(order["folder"] + "/pids")
            self._client = Client(order["url"])

        async def async_invoke(self, value: int) -> list[int]:
            return [await self._client.ask(value)]

    configuration = Configuration()
    settings = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "execution.checkpointing.interval": "1 s",
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    jvm = get_gateway().jvm
    java = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    jars = to_jarray(jvm.String, [])
    environment = StreamExecutionEnvironment(
        java.createRemoteEnvironment(
            "127.0.0.1", order["rest"], configuration._j_configuration, jars
        )
    )
    environment.set_parallelism(PROCESSES)
    numbers = environment.from_source(
        NumberSequenceSource(0, order["rows"] - 1),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )
    answers = AsyncDataStream.unordered_wait(
        numbers, Ask(), Time.minutes(10), order["in_flight"], Types.LONG()
    )
    sink = jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    answers._j_data_stream.sinkTo(sink)
    when_told()
    environment.execute("calls")
    print("DONE", flush=True)


PROGRAMS: dict[str, Callable[[dict[str, Any]], None]] = {
    "mapInArrow": spark,
    "Ray Data": ray,
    "Daft": daft,
    "PyFlink": pyflink,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](json.loads(sys.argv[2]))
