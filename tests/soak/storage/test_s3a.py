"""``read="auto"`` over S3: workers read with pyarrow what Spark reads with Hadoop's S3A, or Spark reads."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.object_store import guarded
from tests.kit.own_driver import drive

#: Folder with the jars of hadoop-aws, which scripts/storage.sh downloads.
JARS = os.environ.get("HEADGATE_TEST_S3A")
pytestmark = pytest.mark.skipif(
    JARS is None, reason="no jars of hadoop-aws: run scripts/storage.sh tests/soak/storage"
)

ROWS = 3000
#: Names of files in each bucket; S3A and pyarrow encode them each in its own way.
FILES = ("t/a.parquet", "t/b c+d%25.parquet", "t/Zürich=1.parquet")
#: Bucket -> settings of its own, and the reason for which Spark reads it; none if the workers do.
BUCKETS = {
    "with-keys": ({}, ""),
    "with-a-token": ({}, ""),
    "from-variables": (
        {
            "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        },
        "",
    ),
    "without-path-style": ({"path.style.access": "false"}, ""),
    "random-access": ({"experimental.input.fadvise": "random", "threads.max": "7"}, ""),
    "requester-pays": ({"requester.pays.enabled": "true"}, "requester.pays.enabled is true"),
    "newer-hadoop": ({"setting.of.tomorrow": "1"}, "fs.s3a.setting.of.tomorrow is set"),
}

BODY = """
import datetime as dt, io
from headgate.sink import FileSink
from headgate.source import FileSource, read
from headgate.spark import explain, filesystem, report, write

logs = io.StringIO()
handler = logging.StreamHandler(logs)
logging.getLogger().addHandler(handler)
logging.getLogger("headgate.spark").addHandler(handler)
logging.getLogger().setLevel(logging.DEBUG)
context.setLogLevel("INFO")

def tagged(batches):
    yield from batches

def rows(df, how):
    out = exchange(df, by="k", num_partitions=3, map=tagged, schema=df.schema, read=how)
    return sorted(map(repr, out.collect()))

found = {}
for bucket in BUCKETS:
    df = spark.read.parquet(f"s3a://{bucket}/t").where("id >= 100").select("k", "s", "id")
    said.clear()
    by_workers = rows(df, "auto")
    (reader,) = [line for line in said if "read the input" in line or "reads the input" in line][:1]
    out = exchange(df, by="k", num_partitions=3, map=tagged, schema=df.schema, read="auto")
    shown = " ".join(str(explain(out)).split()) + out._jdf.queryExecution().toString()
    found[bucket] = {"reader": reader, "rows": by_workers, "alike": by_workers == rows(df, "spark"), "explained": shown}

store = filesystem("s3a://with-keys", spark)
sink = FileSink("with-keys/out", filesystem=store, mode="append")
written = write(spark.read.parquet("s3a://with-keys/t"), sink)
source = FileSource("with-keys/out", filesystem=store)
sums = [
    spark.read.parquet("s3a://with-keys/out").selectExpr("sum(id)").first()[0],
    exchange(source, by="k", num_partitions=2).selectExpr("sum(id)").first()[0],
]
texts = [repr(sink), repr(source), str(sink.name), str(source.name), repr(store)]

spark.conf.set("fs.s3a.endpoint", "http://127.0.0.1:1")
said.clear()
rows(spark.read.parquet("s3a://with-keys/t"), "auto")
changed = [line for line in said if "reads the input" in line]
reported = report("report.json").read_text()
tell(reported=reported, found=found, sums=sums, texts=texts, changed=changed, stats=repr(last_stats()), logs=logs.getvalue())
"""


@pytest.fixture(scope="module")
def table():
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([n % 17 for n in ids], pa.int32()),
            "s": [None if n % 5 == 0 else f"row {n} Zürich" for n in ids],
        }
    )


@pytest.fixture(scope="module")
def driven(tmp_path_factory, table):
    """The values that a driver has told, its log, and the secrets that no text may have."""
    folder = tmp_path_factory.mktemp("s3a")
    with guarded(folder) as store:
        conf = {
            "endpoint": f"http://{store.address}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": store.keys.access,
            "secret.key": store.keys.secret,
        }
        for bucket, (options, _) in BUCKETS.items():
            store.filesystem.create_dir(bucket)
            for number, name in enumerate(FILES):
                part = table.slice(number * ROWS // len(FILES), ROWS // len(FILES))
                pq.write_table(
                    part, f"{bucket}/{name}", filesystem=store.filesystem, row_group_size=300
                )
            conf |= {f"bucket.{bucket}.{name}": value for name, value in options.items()}
        temporary = {
            "access.key": store.temporary.access,
            "secret.key": store.temporary.secret,
            "session.token": store.temporary.token,
        }
        conf |= {f"bucket.with-a-token.{name}": value for name, value in temporary.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", store.keys.access)
            patch.setenv("AWS_SECRET_ACCESS_KEY", store.keys.secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            options = {f"spark.hadoop.fs.s3a.{name}": value for name, value in conf.items()}
            jars = ",".join(map(str, sorted(Path(JARS).glob("*.jar"))))
            body = f"BUCKETS = {[*BUCKETS]!r}\n{BODY}"
            outcome = drive(body, "local[2]", folder, **{**options, "spark.jars": jars})
        secrets = {store.keys.secret, store.temporary.secret, store.temporary.token}
        yield outcome, (folder / "driver.err").read_text(), secrets


@pytest.mark.parametrize("bucket", BUCKETS)
def test_workers_read_what_spark_reads(driven, table, bucket):
    read, reason = driven[0]["found"][bucket], BUCKETS[bucket][1]
    if reason:
        assert "Spark reads the input" in read["reader"]
        assert reason in read["reader"]
        assert reason in read["explained"]
    else:
        assert "the workers read the input" in read["reader"], read["reader"]
    assert read["alike"]
    remaining = table.slice(100).select(["k", "s", "id"]).to_pylist()
    expected = sorted(f"Row(k={row['k']}, s={row['s']!r}, id={row['id']})" for row in remaining)
    assert read["rows"] == expected


def test_sources_and_sinks_take_the_file_system_of_the_session(driven, table):
    total = sum(table["id"].to_pylist())
    assert driven[0]["sums"] == [total, total]


def test_settings_that_changed_after_their_first_use_leave_it_to_spark(driven):
    (reader,) = driven[0]["changed"]
    assert "settings have changed since Spark first used s3a://with-keys" in reader


def test_no_log_plan_or_report_has_a_secret(driven):
    """The logs are those of the driver's Python, py4j's at DEBUG, and those of the JVM, at INFO."""
    outcome, jvm, secrets = driven
    assert "Answer received: !yj<" in outcome["logs"]
    assert "INFO" in jvm
    everything = json.dumps(outcome) + jvm
    assert not [secret for secret in secrets if secret in everything]
