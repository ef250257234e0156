"""Exchanges whose tasks encrypt what they send to each other."""

import pytest

from headgate._options import resolve
from headgate.errors import OptionError
from headgate.spark import encryption
from headgate.spark.driver import application


@pytest.mark.parametrize(
    ("confs", "found"),
    [
        ({}, "off"),
        ({"spark.authenticate": "true"}, "require"),
        ({"spark.network.crypto.enabled": "true"}, "require"),
        ({"spark.ssl.rpc.enabled": "true"}, "require"),
        ({"spark.ssl.enabled": "false", "spark.ssl.rpc.enabled": "false"}, "off"),
    ],
)
def test_auto_asks_what_spark_thinks_of_the_network(spark, monkeypatch, confs, found):
    monkeypatch.setattr(encryption, "context_confs", lambda _: confs)
    options = encryption.with_tls(resolve("exchange", {}, environ={}), spark)
    assert options["tls"] == found
    assert encryption.with_tls(resolve("exchange", {"tls": "off"}), spark)["tls"] == "off"


def test_all_kept_exchanges_of_an_application_have_the_same_options(spark):
    owner = application.of(spark.sparkContext)
    before = owner._tls
    try:
        owner._tls = None
        owner.agree_on_tls({"tls": "require", "tls_ca": None})
        owner.agree_on_tls({"tls": "require", "tls_ca": None})
        with pytest.raises(OptionError, match="tls='off' differs") as caught:
            owner.agree_on_tls({"tls": "off", "tls_ca": None})
        assert "spark.headgate.tls" in str(caught.value)
    finally:
        owner._tls = before
