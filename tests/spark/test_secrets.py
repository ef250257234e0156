"""The secret of an exchange is neither in py4j's log, nor in folders that other users may read."""

import base64
import logging
import re
import stat
from contextlib import suppress

import pytest
from py4j.protocol import Py4JError
from tests.kit.hosts import served
from tests.kit.masters import in_executors

from headgate.spark import exchange
from headgate.spark.driver import application, blocks


def pickled(text):
    """Return what the text has in base64. py4j writes a letter for the type directly before it."""
    for piece in re.findall(r"[A-Za-z0-9+/]{64,}=*", text):
        for start in range(2):
            with suppress(ValueError):
                yield base64.b64decode(piece[start:], validate=True)


def shows(secret, text):
    return secret.hex() in text or any(secret in found for found in pickled(text))


@in_executors
def test_a_debug_log_of_py4j_shows_no_secret(spark, numbers, secrets, caplog, monkeypatch):
    with served(spark, monkeypatch), caplog.at_level(logging.DEBUG):
        out = exchange(numbers, by="k", num_partitions=1, progress="off")
        assert out.count() == numbers.count()
    secrets.append(application.of(spark.sparkContext).data_secret)
    commands = [said for said in caplog.messages if said.startswith("Command to send")]
    assert len(commands) > 10
    assert len(secrets) == 2
    assert not any(shows(secret, "\n".join(caplog.messages)) for secret in secrets)


def test_what_hides_bytes_is_at_work_on_spark(spark, numbers, caplog, monkeypatch):
    """Without it py4j shows them, and the test above would see them."""
    exchange(numbers, by="k", num_partitions=1)
    told = bytes(range(100, 200))

    def tell():
        caplog.clear()
        with caplog.at_level(logging.DEBUG):
            spark._jvm.java.util.Arrays.hashCode(bytearray(told))
        # Not `caplog.text`: PySpark may have set a formatter that writes line ends as two characters.
        return shows(told, "\n".join(caplog.messages))

    assert not tell()
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    assert tell()


def test_others_cannot_enter_the_folders_of_the_drivers_blocks(spark, numbers):
    application.of(spark.sparkContext)
    found = blocks.folders(spark.sparkContext)
    assert found
    for path in found:
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_folders_are_closed_to_all_but_the_owner(tmp_path):
    folder = tmp_path / "blockmgr"
    folder.mkdir()
    for mode, closed in ((0o755, 0o700), (0o2777, 0o2700), (0o700, 0o700)):
        folder.chmod(mode)
        blocks.close([folder])
        assert stat.S_IMODE(folder.stat().st_mode) == closed


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), Py4JError("refused")])
def test_folders_that_cannot_be_closed_are_told_of(spark, monkeypatch, caplog, error):
    def failing(context):
        raise error

    monkeypatch.setattr(blocks, "folders", failing)
    blocks.close_to_others(spark.sparkContext)
    (said,) = caplog.messages
    assert said.startswith("[HG-1204]")
    assert "spark.io.encryption.enabled=true" in said
    assert str(error) in said
