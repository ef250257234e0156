"""Settings of ABFS, Hadoop's client of Azure's Data Lake Storage, as arguments of pyarrow's file system for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.spark.stores.settings import HOST, Settings, only_known, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Scheme -> class of Hadoop's file system whose settings these are.
CLASSES: Final[Mapping[str, str]] = {
    "abfs": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
}
_PREFIX: Final = "fs.azure."
_DOMAIN: Final = ".dfs.core.windows.net"
#: Ends of the names of settings that are for one account.
_DOMAINS: Final = (_DOMAIN, ".blob.core.windows.net")
_TYPE: Final = "fs.azure.account.auth.type"
_KEY: Final = "fs.azure.account.key"
_ENDPOINT: Final = "fs.azure.abfs.endpoint"
#: Settings that become arguments.
_TURNED: Final = frozenset(
    {"abfs.endpoint", "account.auth.type", "account.key", "always.use.https"}
)
#: Settings that change no byte that is read as long as they have one of these values, in lower case.
_LIMITED: Final[Mapping[str, frozenset[str]]] = {
    "secure.mode": frozenset({"", "false"}),
}
#: Settings that change no byte that is read: they are about speed, retries, listings and writing.
_HARMLESS: Final = frozenset(
    {
        *("account.expect.header.enabled", "account.hns.enabled", "account.throttling.enabled"),
        *("account.operation.idle.timeout", "atomic.rename.key", "block.size", "buffer.dir"),
        *("appendblob.directories", "buffered.pread.disable", "cluster.name", "cluster.type"),
        *("client.correlationid", "createRemoteFileSystemDuringInitialization"),
        *("data.blocks.buffer", "disable.outputstream.flush", "enable.abfslistiterator"),
        *("enable.autothrottling", "enable.checksum.validation", "enable.flush"),
        *("enable.conditional.create.overwrite", "enable.mkdir.overwrite", "enable.readahead"),
        *("enable.paginated.delete", "enable.rename.resilience", "fns.account.service.type"),
        *("footer.read.request.size", "infinite-lease.directories", "ingress.service.type"),
        *("io.rate.limit", "lease.threads", "list.max.results", "networking.library"),
        *("readahead.range", "readaheadqueue.depth", "read.alwaysReadBufferSize"),
        *("read.optimizefooterread", "read.policy", "read.readahead.blocksize"),
        *("read.request.size", "read.smallfilescompletely", "ssl.channel.mode"),
        *("skipUserGroupMetadataDuringInitialization", "tracingheader.format", "use.upn"),
        "user.agent.prefix",
    }
)
#: Beginnings of more such names.
_HARMLESS_GROUPS: Final = (
    *("analysis.", "apache.http.client.", "blob.", "block.upload.", "concurrentRequestCount."),
    *("enable.readahead.v2", "enable.tail.latency.", "http.", "identity.transformer."),
    *("io.retry.", "metric.", "readahead.v2.", "static.retry.", "tail.latency.", "write."),
)
_STORE_OF_KEYS: Final = (
    "hadoop.security.credential.provider.path",
    "fs.azure.security.credential.provider.path",
)


def arguments(settings: Settings, host: str, *, is_safe: bool) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.fs.AzureFileSystem``.

    Args:
        settings: of the session.
        host: of the URI, which names the account.
        is_safe: the scheme asks for TLS.

    Raises:
        OptionError: A setting may mean something that pyarrow's file system cannot do, or that is not known.
    """
    account, dot, domain = host.partition(".")
    if f"{dot}{domain}" != _DOMAIN:
        raise refusal(
            f"the URI's host is not an account{_DOMAIN}", f"abfss://container@account{_DOMAIN}/..."
        )
    settings = _of_account(settings, host)
    for name in _STORE_OF_KEYS:
        if settings.get(name):
            raise refusal(
                f"{name} is set: keys may be in a store that only Hadoop opens",
                f"give the key as {_KEY}.{host}",
            )
    if (kind := settings.get(_TYPE)) not in {"", "SharedKey"}:
        # Errors of pyarrow's show the URL of a request, in which a token of SAS is.
        why = "whose token pyarrow's errors would show" if kind == "SAS" else "not SharedKey"
        raise refusal(f"{_TYPE} is {kind}, {why}", f"{_KEY}.{host}=...", setting=f"{_TYPE}={kind}")
    only_known(settings, _PREFIX, {*_TURNED, *_HARMLESS}, _LIMITED, _HARMLESS_GROUPS)
    if not (key := settings.get(_KEY)):
        raise refusal(f"{_KEY}.{host} is not set", f"{_KEY}.{host}=...")
    turned = {"account_name": account, "account_key": key}
    if authority := settings.get(_ENDPOINT):
        if not HOST.fullmatch(authority):
            raise refusal(f"{_ENDPOINT} is no host with a port", f"unset {_ENDPOINT}")
        turned |= {"blob_storage_authority": authority, "dfs_storage_authority": authority}
    if not is_safe and not settings.is_true("fs.azure.always.use.https", True):
        turned |= {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    return turned


def _of_account(settings: Settings, host: str) -> Settings:
    """Return the settings for an account: its own ones stand in for those of all accounts, as in ABFS."""
    of_account = {
        name.removesuffix(f".{host}"): value
        for name, value in settings.values.items()
        if name.endswith(f".{host}")
    }
    general = {n: v for n, v in settings.values.items() if not n.endswith(_DOMAINS)}
    return Settings({**general, **of_account}, settings.defaults - of_account.keys())
