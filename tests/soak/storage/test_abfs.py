"""``read="auto"`` over Azure's storage: workers read with pyarrow what Spark reads with Hadoop's ABFS."""

import json
import os
from pathlib import Path

import pytest
from tests.kit.azure_store import guarded
from tests.kit.own_driver import drive
from tests.soak.storage.side_by_side import READ, check, put

#: Folder with the jars of hadoop-azure, and the program of a server, which scripts/storage.sh downloads.
JARS, AZURITE = os.environ.get("HEADGATE_TEST_ABFS"), os.environ.get("HEADGATE_TEST_AZURITE")
pytestmark = pytest.mark.skipif(
    JARS is None or AZURITE is None,
    reason="no jars of hadoop-azure, or no azurite: run scripts/storage.sh tests/soak/storage",
)

DOMAIN = "dfs.core.windows.net"
#: Container and account -> settings of the session for it, and the reason for which Spark reads it; none if the workers do.
CASES = {
    f"with-a-key@first.{DOMAIN}": ({}, ""),
    f"with-another-key@second.{DOMAIN}": ({}, ""),
    f"small-requests@first.{DOMAIN}": ({"fs.azure.read.request.size": "65536"}, ""),
    f"by-tomorrow@first.{DOMAIN}": (
        {"fs.azure.setting.of.tomorrow": "1"},
        "fs.azure.setting.of.tomorrow is set",
    ),
}
#: Has ABFS use the server of the test, without TLS, which its other network library cannot do.
TO_THE_SERVER = {
    "account.hns.enabled": "false",
    "always.use.https": "false",
    "fns.account.service.type": "BLOB",
    "io.retry.max.retries": "2",
    "networking.library": "JDK_HTTP_URL_CONNECTION",
}

MORE = f"""
spark.conf.set("fs.azure.account.key.first.{DOMAIN}", "b3RoZXI=")
said.clear()
rows(spark.read.parquet("abfs://with-a-key@first.{DOMAIN}/t"), "auto")
changed = [line for line in said if "reads the input" in line]
reported = report("report.json").read_text()
tell(reported=reported, found=found, changed=changed, stats=repr(last_stats()), logs=logs.getvalue())
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """The values that a driver has told, its log, and the secrets that no text may have."""
    folder = tmp_path_factory.mktemp("abfs")
    with guarded(AZURITE, folder, "first", "second") as store:
        for case in CASES:
            container, _, host = case.partition("@")
            put(store.filesystem(host.partition(".")[0]), container)
        conf = {"abfs.endpoint": store.address, **TO_THE_SERVER}
        conf |= {f"account.key.{name}.{DOMAIN}": key for name, key in store.keys.items()}
        options = {f"spark.hadoop.fs.azure.{name}": value for name, value in conf.items()}
        jars = ",".join(map(str, sorted(Path(JARS).glob("*.jar"))))
        cases = {f"abfs://{case}": settings for case, (settings, _) in CASES.items()}
        body = f"CASES = {cases!r}\n{READ}\n{MORE}"
        outcome = drive(body, "local[2]", folder, **{**options, "spark.jars": jars})
        yield outcome, (folder / "driver.err").read_text(), {*store.keys.values()}


@pytest.mark.parametrize("case", CASES)
def test_workers_read_what_spark_reads(driven, case):
    check(driven[0]["found"][f"abfs://{case}"], CASES[case][1])


def test_settings_that_changed_after_their_first_use_leave_it_to_spark(driven):
    (reader,) = driven[0]["changed"]
    assert (
        f"settings have changed since Spark first used abfs://with-a-key@first.{DOMAIN}" in reader
    )


def test_no_log_plan_or_report_has_a_secret(driven):
    """The logs are those of the driver's Python, py4j's at DEBUG, and those of the JVM, at INFO."""
    outcome, jvm, secrets = driven
    assert "INFO" in jvm
    everything = json.dumps(outcome) + jvm
    assert not [secret for secret in secrets if secret in everything]


def test_the_server_checks_keys(tmp_path):
    with guarded(AZURITE, tmp_path, "first", "second") as store:
        put(store.filesystem("first"), "container")
        wrong = {**store.keys, "first": store.keys["second"]}
        with pytest.raises(OSError, match="failed to authenticate"):
            type(store)(store.address, wrong).filesystem("first").open_input_file(
                "container/t/a.parquet"
            )
