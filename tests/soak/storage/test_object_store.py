"""Checkpoints and savepoints in an object store that speaks S3, given as a URI with options."""

import os
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from tests.kit import stream_jobs
from tests.kit.object_store import served

from headgate import errors
from headgate.sink import FileSink
from headgate.source import FileSource, read
from headgate.stream import read_savepoint

ROWS = 4000
#: Any keys will do; the client asks nobody else for them.
KEYS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A process that serves S3, and its address."""
    with served(tmp_path_factory.mktemp("objects")) as both:
        yield both


@pytest.fixture
def uri(server, monkeypatch, request):
    """The URI of a bucket of this test, with the options that a client needs."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    query = f"scheme=http&endpoint_override={server[1]}&region=us-east-1"
    bucket = f"test-{abs(hash(request.node.name))}"
    store, _ = fs.FileSystem.from_uri(f"s3://{bucket}?{query}&allow_bucket_creation=true")
    store.create_dir(bucket)
    return lambda path: f"s3://{bucket}/{path}?{query}"


def slowly(batch):
    time.sleep(0.1)
    return batch


def start(uri, tmp_path, failure=None, **options):
    made = (
        stream_jobs.numbers(ROWS, rate=1500)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    )
    if failure:
        made = made.map(failure, name="fails")
    made = made.key_by("id").map(slowly, name="slow")
    job = made.sink(FileSink(str(tmp_path / "out")), name="files")
    settings = {"checkpoint": uri("job"), "parallelism": 2, "interval": 0.2, "name": "counts"}
    return job.start(**{**settings, **options})


def files(uri, path):
    store, root = fs.FileSystem.from_uri(uri(path))
    found = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return [one.path for one in found if one.is_file]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_loses_and_repeats_no_row(uri, tmp_path, workers):
    failure = stream_jobs.FailOnce(file=tmp_path / "failed", after=ROWS // 4)
    query = start(uri, tmp_path, failure, workers=workers, alignment="unaligned")
    assert query.await_termination(120)
    assert query.status.restarts == 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    # Folders of tasks of older attempts went with their checkpoints.
    attempts = {path.split("/")[3] for path in files(uri, "job/tasks")}
    assert len(attempts) <= 1


def test_a_cancelled_job_goes_on_with_other_options_of_the_store(uri, tmp_path):
    query = start(uri, tmp_path, alignment="unaligned")
    stream_jobs.wait_for_a_checkpoint(query, 1)
    query.cancel()
    query = start(lambda path: f"{uri(path)}&allow_bucket_deletion=true", tmp_path, parallelism=3)
    assert query.await_termination(120)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_savepoint_is_read_and_restored(uri, tmp_path):
    query = start(uri, tmp_path)
    stream_jobs.wait_for_a_checkpoint(query, 1)
    query.stop(savepoint=uri("saved"), timeout=60)
    (count,) = {path.rpartition("/")[0] for path in files(uri, "saved/tasks") if "0-count" in path}
    table = read_savepoint(uri(count.partition("/")[2].rpartition("/")[0]))["count"]
    assert isinstance(table, pa.Table)
    assert table.num_rows
    query = start(uri, tmp_path, savepoint=uri("saved"), checkpoint=uri("other"), parallelism=1)
    assert query.await_termination(120)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_store_that_does_not_answer_for_a_while_costs_time_only(server, uri, tmp_path):
    query = start(uri, tmp_path)
    stream_jobs.wait_for_a_checkpoint(query, 1)
    os.kill(server[0].pid, signal.SIGSTOP)
    try:
        time.sleep(2)
    finally:
        os.kill(server[0].pid, signal.SIGCONT)
    assert query.await_termination(120)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_store_that_is_not_there_is_an_error_with_its_uri(uri, tmp_path):
    def nowhere(path):
        return uri(path).replace("endpoint_override=127.0.0.1", "endpoint_override=127.0.0.2")

    with pytest.raises(errors.CheckpointError, match=r"job/log"):
        start(nowhere, tmp_path)
    assert not (tmp_path / "out").exists()


def test_three_ways_to_name_an_endpoint(uri, server, monkeypatch):
    whole = uri("rows")
    bucket, _, query = whole.removeprefix("s3://").partition("?")
    bucket = bucket.partition("/")[0]
    system = fs.S3FileSystem(endpoint_override=server[1], scheme="http", region="us-east-1")
    table = pa.table({"id": [1, 2, 3]})
    with system.open_output_stream(f"{bucket}/rows/a.parquet") as file:
        pq.write_table(table, file)
    sources = [
        FileSource(whole),
        FileSource("s3a" + whole.removeprefix("s3")),
        FileSource(f"{bucket}/rows", filesystem=system),
        FileSource.from_options({"path": "rows", "filesystem": f"s3://{bucket}?{query}"}),
    ]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server[1]}")
    sources.append(FileSource(f"s3://{bucket}/rows?region=us-east-1"))
    for source in sources:
        with read(source) as records:
            assert records.to_reader().read_all() == table
