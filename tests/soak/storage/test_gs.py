"""``read="auto"`` over Google Cloud Storage: workers read with pyarrow what Spark reads with gcs-connector."""

import json
import os
from pathlib import Path

import pytest
from tests.kit.google_store import guarded
from tests.kit.own_driver import drive
from tests.soak.storage.side_by_side import READ, check, put, table

from headgate.spark.stores.gs import CLASS

#: Folder with the jar of gcs-connector, which scripts/storage.sh downloads.
JARS = os.environ.get("HEADGATE_TEST_GS")
pytestmark = pytest.mark.skipif(
    JARS is None, reason="no jar of gcs-connector: run scripts/storage.sh tests/soak/storage"
)

TYPE = "fs.gs.auth.type"
KEY_FILE = "fs.gs.auth.service.account.json.keyfile"
#: A copy of the file with the key, in the folder in which a driver starts.
OTHER = "other.json"
#: Bucket -> settings of the session for it, and the reason for which Spark reads it; none if the workers do.
WITH_A_KEY = {
    "with-a-key": ({}, ""),
    "by-default": ({TYPE: "APPLICATION_DEFAULT"}, ""),
    "read-ahead": ({"fs.gs.inputstream.fadvise": "RANDOM"}, ""),
    "other-key": ({KEY_FILE: OTHER}, "GOOGLE_APPLICATION_CREDENTIALS only"),
    "with-a-header": ({"fs.gs.storage.http.headers.x": "1"}, "storage.http.headers.x is set"),
    "instance-and-key": ({TYPE: "COMPUTE_ENGINE"}, "the credentials of the instance"),
    "public": ({TYPE: "UNAUTHENTICATED"}, ""),
    "by-tomorrow": ({"fs.gs.setting.of.tomorrow": "1"}, "setting.of.tomorrow is set"),
}
ON_AN_INSTANCE = {"instance": ({TYPE: "COMPUTE_ENGINE"}, "")}
#: Hadoop 3.5 has defaults such as `64m` for these settings, which Google's connector does not read.
NUMBERS = {
    "block.size": 64 << 20,
    "inputstream.inplace.seek.limit": 8 << 20,
    "inputstream.min.range.request.size": 2 << 20,
    "outputstream.buffer.size": 8 << 20,
    "rewrite.max.chunk.size": 512 << 20,
}

MORE = """
store = filesystem("gs://with-a-key", spark)
written = write(spark.read.parquet("gs://with-a-key/t"), FileSink("with-a-key/out", filesystem=store, mode="append"))
source = FileSource("with-a-key/out", filesystem=store)
sums = [
    spark.read.parquet("gs://with-a-key/out").selectExpr("sum(id)").first()[0],
    exchange(source, by="k", num_partitions=2).selectExpr("sum(id)").first()[0],
]
spark.conf.set("fs.gs.storage.root.url", "http://127.0.0.1:1/")
said.clear()
rows(spark.read.parquet("gs://with-a-key/t"), "auto")
changed = [line for line in said if "reads the input" in line]
reported = report("report.json").read_text()
tell(reported=reported, found=found, sums=sums, changed=changed, stats=repr(last_stats()), logs=logs.getvalue())
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """The values that two drivers have told, one with a key and one on an instance, their logs, and the secrets."""
    folder = tmp_path_factory.mktemp("gs")
    with guarded(folder) as store, pytest.MonkeyPatch.context() as patch:
        for bucket in (*WITH_A_KEY, *ON_AN_INSTANCE):
            put(store.filesystem, bucket)
        patch.setenv("HOME", str(folder))
        patch.setenv("GCE_METADATA_HOST", store.address)
        patch.setenv("GCE_METADATA_ROOT", store.address)
        outcomes, logs = [], []
        for buckets, more in ((ON_AN_INSTANCE, "tell(found=found)"), (WITH_A_KEY, MORE)):
            cases = {f"gs://{bucket}": settings for bucket, (settings, _) in buckets.items()}
            conf = {
                "storage.root.url": f"http://{store.address}/",
                "impl": CLASS,
                "auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "auth.service.account.json.keyfile": str(store.key_file),
                **NUMBERS,
            }
            options = {f"spark.hadoop.fs.gs.{name}": str(value) for name, value in conf.items()}
            jars = ",".join(map(str, Path(JARS).glob("*.jar")))
            driver_folder = folder / next(iter(buckets))
            driver_folder.mkdir()
            (driver_folder / OTHER).write_text(store.key_file.read_text())
            body = f"CASES = {cases!r}\n{READ}\n{more}"
            outcomes.append(
                drive(body, "local[2]", driver_folder, **{**options, "spark.jars": jars})
            )
            logs.append((driver_folder / "driver.err").read_text())
            patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(store.key_file))
        yield outcomes, "".join(logs), store.secrets


@pytest.mark.parametrize("bucket", [*WITH_A_KEY, *ON_AN_INSTANCE])
def test_workers_read_what_spark_reads(driven, bucket):
    results = {uri: read for outcome in driven[0] for uri, read in outcome["found"].items()}
    check(results[f"gs://{bucket}"], {**WITH_A_KEY, **ON_AN_INSTANCE}[bucket][1])


def test_sources_and_sinks_take_the_file_system_of_the_session(driven):
    total = sum(table()["id"].to_pylist())
    assert driven[0][1]["sums"] == [total, total]


def test_settings_that_changed_after_their_first_use_leave_it_to_spark(driven):
    (reader,) = driven[0][1]["changed"]
    assert "settings have changed since Spark first used gs://with-a-key" in reader


def test_no_log_plan_or_report_has_a_secret(driven):
    """The logs are those of the driver's Python, py4j's at DEBUG, and those of the JVM, at INFO."""
    outcomes, jvm, secrets = driven
    assert len(secrets) > 10
    assert "INFO" in jvm
    everything = json.dumps(outcomes) + jvm
    assert not [secret for secret in secrets if secret in everything]
