"""Settings of S3A, Hadoop's client of S3, as arguments of pyarrow's S3 file system."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.stores.settings import endpoint, only_known, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from headgate.spark.stores.settings import Settings

#: Class of Hadoop's file system whose settings these are.
CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PREFIX: Final = "fs.s3a."
#: Settings that become arguments.
_TURNED: Final = frozenset(
    {
        *("access.key", "secret.key", "session.token", "aws.credentials.provider"),
        *("assumed.role.arn", "assumed.role.credentials.provider"),
        *("assumed.role.external.id", "assumed.role.session.name"),
        *("connection.ssl.enabled", "endpoint", "endpoint.region", "path.style.access"),
    }
)
#: Ciphers by which S3 decrypts what it gives to anybody who may read.
_BY_S3: Final = frozenset({"", "aes256", "sse-kms", "dsse-kms"})
_OFF: Final = frozenset({"", "false"})
#: Settings that change no byte that is read as long as they have one of these values, in lower case.
_LIMITED: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("encryption.algorithm", "server-side-encryption-algorithm"), _BY_S3),
    **dict.fromkeys(("access.grants.enabled", "accesspoint.required", "endpoint.fips"), _OFF),
    **dict.fromkeys(("http.signer.enabled", "requester.pays.enabled"), _OFF),
    "input.stream.type": frozenset({"", "analytics", "classic", "default", "prefetch"}),
    "signing-algorithm": frozenset({""}),
}
#: Settings that change no byte that is read: they are about speed, retries, listings and writing.
_HARMLESS: Final = frozenset(
    {
        *("acl.default", "assumed.role.session.duration", "attempts.maximum", "block.size"),
        *("buffer.dir", "bulk.delete.page.size", "classloader.isolation"),
        *("create.conditional.enabled", "create.performance", "create.performance.enabled"),
        *("create.checksum.algorithm", "create.multipart", "create.storage.class"),
        *("cross.region.access.enabled", "directory.marker.retention"),
        *("directory.operations.purge.uploads", "downgrade.syncable.exceptions"),
        *("encryption.context", "encryption.key", "server-side-encryption.key"),
        *("etag.checksum.enabled", "executor.capacity", "experimental.aws.s3.throttling"),
        *("experimental.input.fadvise", "impl", "input.async.drain.threshold", "input.fadvise"),
        *("io.rate.limit", "list.version", "max.total.tasks", "multiobjectdelete.enable"),
        *("optimized.copy.from.local.enabled", "paging.maximum", "performance.flags"),
        *("readahead.range", "request.md5.header", "s3express.create.session"),
        *("socket.recv.buffer", "socket.send.buffer", "ssl.channel.mode", "user.agent.prefix"),
    }
)
#: Beginnings of more such names.
_HARMLESS_GROUPS: Final = (
    *("analytics.accelerator.", "audit.", "change.detection.", "checksum.", "committer."),
    *("connection.", "create.header.", "fast.", "multipart.", "prefetch.", "retry."),
    *("select.", "threads.", "vectored."),
)
_STORE_OF_KEYS: Final = (
    "hadoop.security.credential.provider.path",
    "fs.s3a.security.credential.provider.path",
)
_AWS_HOST: Final = re.compile(r"s3(?:\.([a-z0-9-]+))?\.amazonaws\.com")
#: Values of ``fs.s3a.endpoint.region`` that have S3A ask elsewhere.
_ASKED_ELSEWHERE: Final = frozenset({"ec2", "external", "sdk"})
#: The region in signatures for a store that has none.
_NO_REGION: Final = "us-east-1"

_HADOOP: Final = "org.apache.hadoop.fs.s3a"
_AWS_1: Final = "com.amazonaws.auth"
_AWS_2: Final = "software.amazon.awssdk.auth.credentials"
_ROLE: Final = f"{_HADOOP}.auth.AssumedRoleCredentialProvider"
#: Class that has credentials -> its kind. All of AWS's kinds are looked for in the environment.
_PROVIDERS: Final[Mapping[str, str]] = {
    f"{_HADOOP}.TemporaryAWSCredentialsProvider": "temporary keys",
    f"{_HADOOP}.SimpleAWSCredentialsProvider": "keys",
    f"{_HADOOP}.AnonymousAWSCredentialsProvider": "anonymous",
    f"{_AWS_1}.AnonymousAWSCredentials": "anonymous",
    f"{_AWS_2}.AnonymousCredentialsProvider": "anonymous",
    f"{_AWS_1}.EnvironmentVariableCredentialsProvider": "environment",
    f"{_AWS_2}.EnvironmentVariableCredentialsProvider": "environment",
    f"{_AWS_1}.EC2ContainerCredentialsProviderWrapper": "instance",
    f"{_AWS_1}.InstanceProfileCredentialsProvider": "instance",
    f"{_HADOOP}.auth.IAMInstanceCredentialsProvider": "instance",
    f"{_AWS_1}.WebIdentityTokenCredentialsProvider": "web identity",
    f"{_AWS_2}.WebIdentityTokenFileCredentialsProvider": "web identity",
    f"{_AWS_1}.DefaultAWSCredentialsProviderChain": "default",
    f"{_AWS_2}.DefaultCredentialsProvider": "default",
}
#: Kinds in the order in which AWS's chain for Java looks for them.
_JAVA_CHAIN: Final = ("environment", "web identity", "profile", "instance")
#: Kinds in the order in which pyarrow's client of AWS looks for them.
_PYARROW_CHAIN: Final = ("environment", "profile", "web identity", "instance")


@dataclass(frozen=True, slots=True)
class Environment:
    """Credentials that the AWS clients of this process find outside of any setting.

    Attributes:
        has_keys: True if environment variables have keys.
        has_profile: True if there is a file with profiles.
        has_web_identity: True if environment variables name the file of a token.
        has_endpoint: True if environment variables, or files with profiles, may name an endpoint.
    """

    has_keys: bool = False
    has_profile: bool = False
    has_web_identity: bool = False
    has_endpoint: bool = False

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """Return what the environment variables of a process, and the files that they name, have."""
        home = Path(variables.get("HOME", "/")) / ".aws"
        files = [
            Path(variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"),
            Path(variables.get("AWS_CONFIG_FILE") or home / "config"),
        ]
        profiles = [file.read_bytes() for file in files if file.is_file()]
        return cls(
            has_keys=bool(
                variables.get("AWS_ACCESS_KEY_ID") and variables.get("AWS_SECRET_ACCESS_KEY")
            ),
            has_profile=bool(profiles),
            has_web_identity=bool(variables.get("AWS_WEB_IDENTITY_TOKEN_FILE")),
            has_endpoint=any(name.startswith("AWS_ENDPOINT_URL") for name in variables)
            or any(b"endpoint_url" in profile for profile in profiles),
        )

    def first(self, kinds: tuple[str, ...]) -> str:
        """Return the first of these kinds of credentials that is there; an instance may always have some."""
        is_there = {
            "environment": self.has_keys,
            "profile": self.has_profile,
            "web identity": self.has_web_identity,
            "instance": True,
        }
        return next((kind for kind in kinds if is_there[kind]), "")


def arguments(settings: Settings, bucket: str, environment: Environment) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.fs.S3FileSystem`` for a bucket; no ``region`` if the bucket's is not known.

    Raises:
        OptionError: A setting may mean something that pyarrow's file system cannot do, or that is not known.
    """
    for name in _STORE_OF_KEYS:
        if settings.of_bucket(_PREFIX, bucket).get(name):
            raise refusal(
                f"{name} is set: keys may be in a store that only Hadoop opens",
                "give the keys as fs.s3a.access.key and fs.s3a.secret.key, or by a role",
            )
    settings = settings.of_bucket(_PREFIX, bucket)
    only_known(settings, _PREFIX, {*_TURNED, *_HARMLESS}, _LIMITED, _HARMLESS_GROUPS)
    return {**_address(settings, environment), **_credentials(settings, environment)}


def _address(settings: Settings, environment: Environment) -> dict[str, Any]:
    """Return endpoint, scheme, region and addressing."""
    region = settings.get("fs.s3a.endpoint.region")
    is_safe = settings.is_true("fs.s3a.connection.ssl.enabled", True)
    scheme, host = endpoint(settings, "fs.s3a.endpoint", "https" if is_safe else "http")
    if region in _ASKED_ELSEWHERE:
        raise refusal(
            f"fs.s3a.endpoint.region is {region}, for which S3A asks elsewhere",
            'fs.s3a.endpoint.region="eu-west-1"',
            setting=f"fs.s3a.endpoint.region={region}",
        )
    of_aws = _AWS_HOST.fullmatch(host)
    if not host or of_aws:
        if environment.has_endpoint:
            raise refusal(
                "AWS_ENDPOINT_URL or a file with profiles names an endpoint, which pyarrow would not use",
                'fs.s3a.endpoint="http://minio:9000"',
            )
        region = region or (of_aws[1] or "" if of_aws else "")
        return {"scheme": scheme, **({"region": region} if region else {})}
    if "amazonaws." in host and not region:
        raise refusal(
            f"fs.s3a.endpoint is {host}, and fs.s3a.endpoint.region is not set",
            'fs.s3a.endpoint.region="eu-west-1"',
            setting=f"fs.s3a.endpoint={host}",
        )
    by_path = settings.is_true("fs.s3a.path.style.access", False) or _is_address(host)
    return {
        "endpoint_override": host,
        "scheme": scheme,
        "region": region or _NO_REGION,
        "force_virtual_addressing": not by_path,
    }


def _is_address(host: str) -> bool:
    """Return True for an IP address, before which no client puts the name of a bucket."""
    try:
        ip_address(host.rpartition(":")[0].strip("[]") if ":" in host else host)
    except ValueError:
        return False
    return True


def _credentials(settings: Settings, environment: Environment) -> dict[str, Any]:
    name = "fs.s3a.aws.credentials.provider"
    classes = _classes(settings, name)
    if classes and classes[0] == _ROLE:
        return _role(settings, environment)
    return _keys(settings, name, classes, environment)


def _role(settings: Settings, environment: Environment) -> dict[str, Any]:
    """Return the arguments of an assumed role, which pyarrow assumes with credentials of the environment only."""
    name = "fs.s3a.assumed.role.credentials.provider"
    if _keys(settings, name, _classes(settings, name), environment):
        raise refusal(
            "the role of fs.s3a.assumed.role.arn is assumed with other credentials than those of the environment",
            f"{name}={_HADOOP}.auth.IAMInstanceCredentialsProvider",
        )
    named = {
        "role_arn": settings.get("fs.s3a.assumed.role.arn"),
        "session_name": settings.get("fs.s3a.assumed.role.session.name"),
        "external_id": settings.get("fs.s3a.assumed.role.external.id"),
    }
    if not named["role_arn"]:
        raise refusal("fs.s3a.assumed.role.arn is not set", "fs.s3a.assumed.role.arn=...")
    return {argument: value for argument, value in named.items() if value}


def _classes(settings: Settings, name: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", settings.get(name)) if name]


def _keys(
    settings: Settings, name: str, classes: list[str], environment: Environment
) -> dict[str, Any]:
    """Return the first credentials that these classes find; nothing if the environment has them."""
    access, secret, token = (
        settings.get(f"fs.s3a.{short}") for short in ("access.key", "secret.key", "session.token")
    )
    kinds: list[str] = []
    for provider in classes:
        kind = _PROVIDERS.get(provider)
        if kind is None:
            raise refusal(
                f"{name} has {provider}, which pyarrow's S3 file system does not know",
                "use one of the classes on the page about sources",
                setting=f"{name}={provider}",
            )
        if kind == "default":
            kinds += _JAVA_CHAIN
        elif kind not in {"anonymous", "keys", "temporary keys"}:
            kinds.append(kind)
        if kinds and environment.first(tuple(kinds)):
            break
        if kind == "anonymous":
            return {"anonymous": True}
        if access and secret and (kind == "keys" or (kind == "temporary keys" and token)):
            keys = {"access_key": access, "secret_key": secret}
            return {**keys, "session_token": token} if kind == "temporary keys" else keys
    in_spark = environment.first(tuple(kinds))
    in_pyarrow = environment.first(_PYARROW_CHAIN)
    if in_spark != in_pyarrow:
        raise refusal(
            f"pyarrow's S3 file system would use the credentials of the {in_pyarrow}, and Spark those of "
            + (f"the {in_spark}" if in_spark else f"no provider in {name}"),
            "give the keys as fs.s3a.access.key and fs.s3a.secret.key",
        )
    return {}
