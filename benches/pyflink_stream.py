"""One PyFlink job, run by PyFlink's own Python: ``python -P pyflink_stream.py ORDER``, as benches/pyflink.py does.

A Java source makes records (key, event time, payload of 72 characters, time of creation), some 100 bytes. A
Python map adds a column to each. They go by their key through an exchange to a Python keyed process function,
which counts them in a ValueState and gives (key, count, event time, time of creation) to a Java sink.

``ORDER`` and the answer, the last line printed, are JSON. Without ``-P``, the neighbour pyflink.py would be
imported in the place of PyFlink.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types
from pyflink.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.data_stream import DataStream
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.util.java_utils import add_jars_to_context_class_loader, to_jarray

HOST = "127.0.0.1"
COUNTERS = ("rows", "measured", "total", "first", "last", "behind")


class AddScore(MapFunction):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        leave_pid(self._folder)

    def map(self, value: tuple[int, int, str, int]) -> tuple[int, int, str, int, int]:
        key, time, payload, created = value
        return key, time, payload, created, (key * 31 + time) % 1009


class Count(KeyedProcessFunction):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        leave_pid(self._folder)
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[int, int, str, int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count, value[1], value[3]


def leave_pid(folder: str) -> None:
    """Leave the id of this process, which shows in which mode the function runs."""
    (Path(folder) / str(os.getpid())).touch()


def run(order: dict[str, Any]) -> dict[str, Any]:
    configuration = Configuration()
    settings = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.execution-mode": order["mode"],
        **order["options"],
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    jvm = get_gateway().jvm
    java = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    environment = StreamExecutionEnvironment(
        java.createRemoteEnvironment(
            HOST,
            order["rest"],
            configuration._j_configuration,
            to_jarray(jvm.String, [order["jar"]]),
        )
    )
    environment.set_parallelism(order["parallelism"])
    # For this process; the cluster gets the jar with the job.
    add_jars_to_context_class_loader([Path(order["jar"]).as_uri()])
    source = jvm.StreamEnds.source(
        environment._j_stream_execution_environment,
        order["records"],
        order["keys"],
        float(order["rate"]),
    )
    long = Types.LONG()
    counted = (
        DataStream(source)
        .map(AddScore(order["pids"]), Types.TUPLE([long, long, Types.STRING(), long, long]))
        .key_by(lambda record: record[0], long)
        .process(Count(order["pids"]), Types.TUPLE([long] * 4))
    )
    jvm.StreamEnds.sink(
        counted._j_data_stream,
        order["keys"],
        order["warm_records"],
        float(order["warm_seconds"]),
    )
    result = environment.execute("pyflink stream")
    answer = {name: result.get_accumulator_result(name) for name in COUNTERS}
    latency = result._j_job_execution_result.getAccumulatorResult("latency")
    if latency:
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
            answer[name] = jvm.StreamEnds.quantile(latency, share)
    return answer


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
