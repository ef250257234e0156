"""Settings of Google's gcs-connector, a client of Hadoop's, as arguments of pyarrow's file system for its store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.stores.settings import endpoint, only_known, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from headgate.spark.stores.settings import Settings

#: Class of the file system whose settings these are. Hadoop's own class for ``gs`` has no endpoint.
CLASS: Final = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
_PREFIX: Final = "fs.gs."
_TYPE: Final = "fs.gs.auth.type"
_KEY_FILE: Final = "fs.gs.auth.service.account.json.keyfile"
_ROOT: Final = "fs.gs.storage.root.url"
#: Settings that become arguments.
_TURNED: Final = frozenset({"auth.service.account.json.keyfile", "auth.type", "storage.root.url"})
_OFF: Final = frozenset({"", "false"})
#: Settings that change no byte that is read as long as they have one of these values, in lower case.
_LIMITED: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("bidi.enable", "grpc.enable"), _OFF),
    "client.type": frozenset({"", "http_api_client"}),
    "inputstream.support.gzip.encoding.enable": _OFF,
    "requester.pays.mode": frozenset({"", "disabled"}),
    "storage.service.path": frozenset({"", "storage/v1/"}),
}
#: Settings that change no byte that is read: they are about speed, retries, listings and writing.
_HARMLESS: Final = frozenset(
    {
        *("application.name.suffix", "batch.threads", "block.size", "bucket.delete.enable"),
        *("checksum.type", "client.upload.type", "cloud.logging.enable"),
        *("copy.with.rewrite.enable", "create.items.conflict.check.enable"),
        *("fadvise.request.track.count", "glob.algorithm", "impl", "implicit.dir.repair.enable"),
        *("inputstream.fadvise", "inputstream.fast.fail.on.not.found.enable"),
        *("inputstream.inplace.seek.limit", "inputstream.min.range.request.size"),
        *("lazy.init.enable", "list.max.items.per.call", "marker.file.pattern"),
        *("max.requests.per.batch", "metrics.sink", "operation.move.enable"),
        *("operation.tracelog.enable", "project.id", "reported.permissions"),
        *("requester.pays.buckets", "requester.pays.project.id", "status.parallel.enable"),
        *("storage.client.cache.enable", "tracelog.enable", "working.dir"),
    }
)
#: Beginnings of more such names.
_HARMLESS_GROUPS: Final = (
    *("hierarchical.namespace.folders.", "http.", "max.wait.for.empty.object.creation"),
    *("outputstream.", "performance.cache.", "rewrite.max.", "vectored.read.", "write."),
)
#: Beginning of settings that stand in for those of ``fs.gs.`` that are not set.
_BASE: Final = "google.cloud."
#: Scheme and host of the store if nothing says otherwise.
_GOOGLE: Final = ("https", "storage.googleapis.com")
#: Variable with the file of a key, for all of Google's clients.
_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
#: Variables that change where a client looks, for pyarrow's or for Java's only.
_ELSEWHERE: Final = (
    *("CLOUDSDK_CONFIG", "CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT"),
    *("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "GOOGLE_GCLOUD_ADC_PATH_OVERRIDE", "STORAGE_EMULATOR_HOST"),
)
#: Time for which pyarrow tries again: without it, a quarter of an hour.
_RETRIES: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Environment:
    """Credentials that Google's clients find outside of any setting, here and on the executors.

    Attributes:
        key_file: file of the variable ``GOOGLE_APPLICATION_CREDENTIALS``; empty if it is not set.
        has_login: True if a user has logged in with ``gcloud auth application-default``.
        is_shared: True if executors have the same variable or the same login.
        elsewhere: variables that are set and change where a client looks.
    """

    key_file: str = ""
    has_login: bool = False
    is_shared: bool = True
    elsewhere: tuple[str, ...] = ()

    @classmethod
    def of(cls, variables: Mapping[str, str], confs: Mapping[str, str], *, is_local: bool) -> Self:
        """Return what a process's variables say.

        Args:
            variables: of the driver.
            confs: configuration of the application, which has the executors' variables.
            is_local: the executor is in the driver's process.
        """
        login = (
            Path(variables.get("HOME", "/")) / ".config/gcloud/application_default_credentials.json"
        )
        key_file = variables.get(_VARIABLE, "")
        elsewhere = [name for name in _ELSEWHERE if name in variables]
        if variables.get("GCE_METADATA_HOST") != variables.get("GCE_METADATA_ROOT"):
            elsewhere.append("GCE_METADATA_HOST")
        of_executors = confs.get(f"spark.executorEnv.{_VARIABLE}")
        return cls(
            key_file,
            login.is_file(),
            is_local if of_executors is None else of_executors == key_file,
            tuple(elsewhere),
        )


def arguments(settings: Settings, environment: Environment) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.fs.GcsFileSystem``.

    Raises:
        OptionError: A setting may mean something that pyarrow's file system cannot do, or that is not known.
    """
    only_known(settings, _PREFIX, {*_TURNED, *_HARMLESS}, _LIMITED, _HARMLESS_GROUPS)
    for name in settings.changed(_BASE):
        raise refusal(f"{name} is set", f"unset {name}, and set {_PREFIX}... instead")
    if environment.elsewhere:
        raise refusal(
            f"the environment has {environment.elsewhere[0]}, which changes where pyarrow or Spark looks",
            f"unset {environment.elsewhere[0]}",
        )
    turned: dict[str, Any] = {"retry_time_limit": _RETRIES}
    where = endpoint(settings, _ROOT, "https")
    if where not in {("https", ""), _GOOGLE}:
        turned |= {"scheme": where[0], "endpoint_override": where[1]}
    if _kind(settings) == "UNAUTHENTICATED":
        return {**turned, "anonymous": True}
    _check_credentials(settings, environment)
    return turned


def _kind(settings: Settings) -> str:
    return settings.get(_TYPE) or "COMPUTE_ENGINE"


def _check_credentials(settings: Settings, environment: Environment) -> None:
    """Refuse settings unless pyarrow, which takes no credentials but those it finds, finds those of Spark."""
    kind = _kind(settings)
    credentials = environment.key_file or ("a login with gcloud" if environment.has_login else "")
    if kind == "COMPUTE_ENGINE":
        if credentials:
            raise refusal(
                f"pyarrow would use {credentials}, and Spark the credentials of the instance",
                f"unset {_VARIABLE}, or {_TYPE}=APPLICATION_DEFAULT",
            )
    elif kind == "SERVICE_ACCOUNT_JSON_KEYFILE":
        file = settings.get(_KEY_FILE)
        if not environment.key_file or not _is_same(file, environment.key_file):
            raise refusal(
                f"pyarrow takes the file of a key from {_VARIABLE} only, which does not name that of {_KEY_FILE}",
                f"{_VARIABLE}=... for the driver, and spark.executorEnv.{_VARIABLE}=... for the executors",
            )
    elif kind != "APPLICATION_DEFAULT":
        raise refusal(
            f"{_TYPE} is {kind}, which pyarrow's file system of Google cannot do",
            f"{_TYPE}=SERVICE_ACCOUNT_JSON_KEYFILE, APPLICATION_DEFAULT or COMPUTE_ENGINE",
            setting=f"{_TYPE}={kind}",
        )
    if credentials and not environment.is_shared:
        raise refusal(
            f"executors may not have the credentials that the driver has, {credentials}",
            f"spark.executorEnv.{_VARIABLE}=..., with a file that each executor has",
        )


def _is_same(file: str, other: str) -> bool:
    """Return True if two paths name one file."""
    return bool(file) and os.path.realpath(file) == os.path.realpath(other)
