"""Jobs with calls of a service that the faults hit: alone, and between two exchanges by key."""

import json
from pathlib import Path

import pyarrow as pa
from benches.calls.client import TOO_MANY, Client, wait_of
from tests.soak.streams import points
from tests.soak.streams.bill import COLUMNS
from tests.soak.streams.pipeline import SCHEMA, GatedNumbers, Rows

from headgate.sink import FileSink
from headgate.stream import CallFunction, ProcessFunction, Retry, stream

ANSWERS = pa.schema([(name, pa.int64()) for name in COLUMNS])


class Ask(CallFunction):
    """Calls the service whose place a file has. Each task that opens it leaves a line in another file.

    Args:
        root: folder of these files.
    """

    def __init__(self, root):
        self.root = Path(root)

    def open(self, context):
        """Note that there is one more task."""
        with (self.root / "opened").open("a") as file:
            file.write(f"{context.index}\n")
        self.url, self.client = None, None

    async def call(self, row, context):
        """Return the row."""
        points.hit("call")
        url = (self.root / "service").read_text()
        if url != self.url:
            self.url, self.client = url, Client(url)
        client = self.client
        question = {name: row[name] for name in ANSWERS.names}
        status, headers, body = await client.post(json.dumps(question).encode(), context.call_id)
        if status == TOO_MANY:
            raise Retry("429", after=wait_of(headers) / 10)
        if status >= 400:
            raise ConnectionError(f"status {status}")
        return json.loads(body)

    async def close(self):
        """Close the connections."""
        if self.client is not None:
            await self.client.close()


class Pass(ProcessFunction):
    """Emits rows as they come, at a point."""

    def process(self, batch, context):
        """Return the rows."""
        points.hit("process")
        return batch


def job(spec):
    """Return the job of a driver."""
    root, shape = Path(spec["root"]), spec["shape"]
    source = GatedNumbers(spec["rows"], root / "gate")
    rows = stream(source, name="ids").map(
        Rows(spec["seed"], spec["pause"]), schema=SCHEMA, name="rows"
    )
    if shape["exchanges"]:
        rows = rows.key_by("key")
    calls = rows.map_async(
        Ask(root), schema=ANSWERS, name="calls", retries=10_000, backoff=0.02, **shape["options"]
    )
    if shape["exchanges"]:
        calls = calls.key_by("other").process(Pass, schema=ANSWERS, name="behind")
    return calls.sink(FileSink(str(root / "out" / "answers"), mode="append"), name="out")
