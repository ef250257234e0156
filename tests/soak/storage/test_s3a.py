"""``read="auto"`` over S3: workers read with pyarrow what Spark reads with Hadoop's S3A, or Spark reads."""

import json
import os
from pathlib import Path

import pytest
from tests.kit.object_store import guarded
from tests.kit.own_driver import drive
from tests.soak.storage.side_by_side import READ, check, put, table

#: Folder with the jars of hadoop-aws, which scripts/storage.sh downloads.
JARS = os.environ.get("HEADGATE_TEST_S3A")
pytestmark = pytest.mark.skipif(
    JARS is None, reason="no jars of hadoop-aws: run scripts/storage.sh tests/soak/storage"
)

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

MORE = """
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
def driven(tmp_path_factory):
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
            put(store.filesystem, bucket)
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
            cases = {f"s3a://{bucket}": {} for bucket in BUCKETS}
            body = f"CASES = {cases!r}\n{READ}\n{MORE}"
            outcome = drive(body, "local[2]", folder, **{**options, "spark.jars": jars})
        secrets = {store.keys.secret, store.temporary.secret, store.temporary.token}
        yield outcome, (folder / "driver.err").read_text(), secrets


@pytest.mark.parametrize("bucket", BUCKETS)
def test_workers_read_what_spark_reads(driven, bucket):
    check(driven[0]["found"][f"s3a://{bucket}"], BUCKETS[bucket][1])


def test_sources_and_sinks_take_the_file_system_of_the_session(driven):
    total = sum(table()["id"].to_pylist())
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
