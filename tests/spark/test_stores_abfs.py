"""Hadoop's settings of Azure's storage as arguments of pyarrow's file system."""

import pytest
from pyarrow import fs

from headgate import errors
from headgate.spark import filesystem
from headgate.spark.stores import abfs
from headgate.spark.stores.located import located
from headgate.spark.stores.settings import Settings

DEFAULTS = {"secure.mode": "false", "unknown.default": "1"}
HOST = "account.dfs.core.windows.net"
KEY = {f"account.key.{HOST}": "a2V5"}
TURNED_KEY = {"account_name": "account", "account_key": "a2V5"}


def arguments(options, host=HOST, is_safe=True):
    named = {**DEFAULTS, **options}.items()
    values = {n if n.startswith("hadoop.") else f"fs.azure.{n}": value for n, value in named}
    defaults = frozenset(f"fs.azure.{n}" for n in DEFAULTS.keys() - options.keys())
    return abfs.arguments(Settings(values, defaults), host, is_safe=is_safe)


HERE = {"blob_storage_authority": "localhost:1", "dfs_storage_authority": "localhost:1"}
HTTP = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
TURNED = {
    "a key": (KEY, {}, True),
    "a key for all accounts": ({"account.key": "a2V5"}, {}, True),
    "a key of this account before that of all": ({**KEY, "account.key": "b3RoZXI="}, {}, True),
    "settings of another account": (
        {**KEY, "account.auth.type.other.dfs.core.windows.net": "OAuth"},
        {},
        True,
    ),
    "a named type": ({**KEY, f"account.auth.type.{HOST}": "SharedKey"}, {}, True),
    "a server": ({**KEY, "abfs.endpoint": "localhost:1", "always.use.https": "false"}, HERE, True),
    "no TLS": (
        {**KEY, "abfs.endpoint": "localhost:1", "always.use.https": "false"},
        {**HERE, **HTTP},
        False,
    ),
    "TLS for the other scheme": (KEY, {}, False),
    "settings about speed and writing": (
        {**KEY, "read.request.size": "1", "write.request.size": "1", "io.retry.max.retries": "1"},
        {},
        True,
    ),
}


@pytest.mark.parametrize("case", TURNED)
def test_settings_become_arguments_of_pyarrow(case):
    options, expected, is_safe = TURNED[case]
    turned = arguments(options, is_safe=is_safe)
    assert turned == {**TURNED_KEY, **expected}
    rebuilt = fs.AzureFileSystem(**turned).__reduce__()[1][0]
    assert {name: rebuilt[name] for name in turned} == turned


REFUSED = {
    "a name that is not known": ({**KEY, "new.in.hadoop": "x"}, HOST, "new.in.hadoop is set"),
    "a setting of a container": (
        {**KEY, f"sas.fixed.token.container.{HOST}": "planted"},
        HOST,
        "sas.fixed.token.container is set",
    ),
    "a token of a signature": (
        {"account.auth.type": "SAS", f"sas.fixed.token.{HOST}": "planted"},
        HOST,
        "whose token pyarrow's errors would show",
    ),
    "a client": (
        {"account.auth.type": "OAuth", f"account.oauth2.client.secret.{HOST}": "planted"},
        HOST,
        "auth.type is OAuth, not SharedKey",
    ),
    "an access by a client besides": (
        {**KEY, "account.oauth2.client.secret": "planted"},
        HOST,
        "oauth2.client.secret is set",
    ),
    "a class that has keys": ({**KEY, f"account.keyprovider.{HOST}": "c"}, HOST, "provider is set"),
    "a key of the client's": (
        {**KEY, f"encryption.encoded.client-provided-key.{HOST}": "planted"},
        HOST,
        "client-provided-key is set",
    ),
    "no key": ({}, HOST, "is not set"),
    "a store of keys": (
        {**KEY, "hadoop.security.credential.provider.path": "jceks:"},
        HOST,
        "only Hadoop opens",
    ),
    "a variable": ({f"account.key.{HOST}": "${key}"}, HOST, "has a variable"),
    "a path in the endpoint": ({**KEY, "abfs.endpoint": "h/p"}, HOST, "no host with a port"),
    "another host": (KEY, "account.blob.core.windows.net", "is not an account"),
    "another cloud": (KEY, "account.dfs.core.chinacloudapi.cn", "is not an account"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_pyarrow_cannot_have_are_refused(case):
    options, host, reason = REFUSED[case]
    with pytest.raises(errors.OptionError, match=reason) as refused:
        arguments(options, host)
    assert refused.value.remedy
    assert "planted" not in f"{refused.value} {refused.value.details}"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (f"abfss://container@{HOST}/folder", "hadoop-azure"),
        (f"abfss://{HOST}/folder", "names no container and account"),
        (f"abfss://container:planted@{HOST}/folder", "names no container and account"),
    ],
)
def test_a_uri_that_workers_do_not_read_is_refused(spark, uri, reason):
    with pytest.raises(errors.OptionError, match=reason) as refused:
        located(spark, [uri])
    assert "planted" not in str(refused.value)


def test_sources_and_sinks_get_no_file_system_of_azure(spark):
    with pytest.raises(errors.OptionError, match="for an empty file"):
        filesystem(f"abfss://container@{HOST}/folder", spark)
