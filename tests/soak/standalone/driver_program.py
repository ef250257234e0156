"""Runs commands from a Unix socket, one per line. spark-submit starts it on the driver's host.

The functions of this file travel to the workers by value, as workers have only Headgate and its
dependencies.
"""

import json
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.spark import exchange, last_stats


def places(batches):
    """Yield one row with the paths of the worker's Python and Headgate."""
    import os
    from pathlib import Path

    import pyarrow as pa

    import headgate
    import headgate._native

    for _ in batches:
        pass
    time.sleep(1)  # so that each slot runs one task
    row = {
        "python": sys.executable,
        "headgate": headgate.__file__,
        "native": headgate._native.__file__,
        "pyarrow": pa.__file__,
        "path": os.pathsep.join(sys.path),
        "here": str(Path.cwd()),
    }
    yield pa.RecordBatch.from_pylist([row])


class Program:
    def __init__(self, spark, sock):
        self._spark = spark
        self._sock = sock

    def say(self, **answer):
        self._sock.sendall(json.dumps({**answer, "at": time.monotonic()}).encode() + b"\n")

    def where(self, partitions):
        """Answer with the paths that each of ``partitions`` tasks sees."""
        names = ("python", "headgate", "native", "pyarrow", "path", "here")
        schema = ", ".join(f"{name} string" for name in names)
        rows = self._spark.range(0, partitions, 1, partitions).mapInArrow(places, schema).collect()
        self.say(rows=[row.asDict() for row in rows])

    def keep(self, rows, partitions, does="", by="k", **options):
        """Exchange rows of about 200 bytes by the default way.

        Answer once a consumer has a batch, unless ``does`` is empty, and at the end with the rows by
        partition, those of Spark's own way, how many producers ran again, and where each one ran.

        Args:
            rows: number of rows.
            partitions: of the result.
            does: "kill" to kill an executor once its consumer has a batch, "wait" to let consumers
                wait 10 s then, "linger" for 1 s.
            by: column that places the rows; None for rows in turn.
            options: of the exchange.
        """
        df = self._spark.range(0, rows, 1, 6).selectExpr("id", "id % 97 k", "repeat('x', 180) s")
        folder = Path(tempfile.mkdtemp())
        out = exchange(
            df,
            by=by,
            map=noting(folder),
            reduce=counting(folder, does),
            schema="p int, n long, total long, here string",
            map_schema=df.schema,
            num_partitions=partitions,
            **options,
        )
        ended = threading.Event()
        began = (folder / "began").exists if does else _never
        watch = threading.Thread(target=self._watch, args=(began, ended))
        watch.start()
        answer = {"said": "ended", "error": "", "rows": []}
        try:
            answer["rows"] = [row.asDict() for row in out.collect()]
        except Exception as error:  # noqa: BLE001 - the tests look at it
            answer["error"] = str(error)
        ended.set()
        watch.join()
        stats = last_stats()
        place = df.repartition(partitions, "k").selectExpr("spark_partition_id() p", "id")
        own = place.groupBy("p").agg({"id": "count"}).collect()
        ran = {}
        for note in sorted(folder.glob("ran-*"), key=lambda path: int(path.name.split("-")[2])):
            ran.setdefault(note.name.split("-")[1], []).append(note.read_text())
        owned = {row["p"]: row[1] for row in own}
        self.say(**answer, own=owned, made_again=stats.made_again, ran=ran)

    def slowest(self, slow):
        """Exchange rows whose map takes three times as long on the worker named ``slow``. Answer with the verdict."""
        df = self._spark.range(0, 12_000, 1, 12)
        out = exchange(df, by="id", map=slower(slow), schema=df.schema, num_partitions=2)
        rows = out.count()
        end = time.monotonic() + 60
        while (stats := last_stats()) is None or stats.state != "done":
            assert time.monotonic() < end, stats
            time.sleep(0.1)
        found = stats.verdict
        hosts = sorted({task.host for task in stats.tasks if task.role == "map"})
        verdict = found and {"kind": found.kind, "stage": found.stage, "text": found.text}
        self.say(rows=rows, verdict=verdict, hosts=hosts)

    def _watch(self, flows, ended):
        """Answer once rows flow."""
        while not ended.wait(0.1):
            if flows():
                self.say(said="flowing")
                return


def _never():
    return False


def slower(name):
    """Return a function that takes 1 ms for each row, and 3 ms on the worker of this name."""

    def function(batches):
        pace = 0.003 if f"/{name}/" in str(Path.cwd()) else 0.001
        for batch in batches:
            time.sleep(pace * batch.num_rows)
            yield batch

    return function


def noting(folder):
    """Return a function that yields its input, and notes the directory of its executor at the end."""

    def note(batches):
        from pyspark import TaskContext

        yield from batches
        name = f"ran-{TaskContext.get().partitionId()}-{time.monotonic_ns()}"
        (folder / name).write_text(str(Path.cwd()))

    return note


def counting(folder, does):
    """Return a function that counts its rows, and does something once it has a batch."""

    def count(batches):
        import os
        import signal

        import pyarrow as pa
        from pyspark import TaskContext

        partition = TaskContext.get().partitionId()
        n = total = 0
        for batch in batches:
            if n == 0:
                began = not (folder / "began").exists() and partition == 1
                if does in {"wait", "linger"}:
                    (folder / "began").touch()
                    time.sleep(10 if does == "wait" else 1)
                if does == "kill" and began:
                    (folder / "began").touch()
                    daemon = Path(f"/proc/{os.getppid()}/status").read_text(encoding="ascii")
                    os.kill(int(daemon.partition("PPid:")[2].split()[0]), signal.SIGKILL)
                    time.sleep(60)
            n += batch.num_rows
            total += sum(batch["id"].to_pylist())
        row = {"p": partition, "n": n, "total": total, "here": str(Path.cwd())}
        schema = pa.schema(
            [("p", pa.int32()), ("n", pa.int64()), ("total", pa.int64()), ("here", pa.string())]
        )
        yield pa.RecordBatch.from_pylist([row], schema=schema)

    return count


def main(place):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(place)
        spark = SparkSession.builder.appName("headgate standalone").getOrCreate()
        try:
            program = Program(spark, sock)
            program.say(said="started", slots=spark.sparkContext.defaultParallelism)
            for line in sock.makefile():
                command = json.loads(line)
                getattr(program, command.pop("do"))(**command)
        finally:
            spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
