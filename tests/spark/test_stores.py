"""Hadoop's settings of S3 as arguments of pyarrow's file system, tried on a server that checks signatures."""

import logging
import os

import pytest
from pyarrow import fs
from tests.kit.object_store import guarded

from headgate import errors
from headgate.spark import filesystem
from headgate.spark.stores import s3a
from headgate.spark.stores.located import located
from headgate.spark.stores.settings import Settings

HADOOP = "org.apache.hadoop.fs.s3a"
AWS_2 = "software.amazon.awssdk.auth.credentials"
ENVIRONMENT = f"{AWS_2}.EnvironmentVariableCredentialsProvider"
INSTANCE = f"{HADOOP}.auth.IAMInstanceCredentialsProvider"
#: The default of ``fs.s3a.aws.credentials.provider``.
CHAIN = (
    f"\n  {HADOOP}.TemporaryAWSCredentialsProvider,\n  {HADOOP}.SimpleAWSCredentialsProvider,\n"
    f"  {ENVIRONMENT},\n  {INSTANCE}\n"
)
DEFAULTS = {
    "aws.credentials.provider": CHAIN,
    "assumed.role.credentials.provider": f"{HADOOP}.SimpleAWSCredentialsProvider",
    "connection.ssl.enabled": "true",
    "buffer.dir": "${hadoop.tmp.dir}/s3a",
    "unknown.default": "1",
}
KEYS = {"access.key": "a", "secret.key": "s"}
TOKEN = {**KEYS, "session.token": "t"}
OURS = {"access_key": "a", "secret_key": "s"}
OURS_TOKEN = {**OURS, "session_token": "t"}
AWS = {"scheme": "https", "region": "eu-west-1"}
HERE = {"endpoint.region": "eu-west-1"}
MINIO = {"scheme": "http", "endpoint_override": "minio:9000", "region": "us-east-1"}


def settings(**options):
    values = {f"fs.s3a.{name}": value for name, value in {**DEFAULTS, **options}.items()}
    return Settings(
        values, frozenset(f"fs.s3a.{name}" for name in DEFAULTS.keys() - options.keys())
    )


def arguments(options, variables=None, bucket="bucket"):
    environment = s3a.Environment.of({"HOME": "/nowhere", **(variables or {})})
    return s3a.arguments(settings(**options), bucket, environment)


VARIABLES = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "e"}
WEB = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}


def by(*classes, **options):
    return {"aws.credentials.provider": ", ".join(classes), **HERE, **options}


ROLE = by(
    f"{HADOOP}.auth.AssumedRoleCredentialProvider",
    **{
        "assumed.role.arn": "arn:aws:iam::1:role/r",
        "assumed.role.session.name": "n",
        "assumed.role.external.id": "x",
        "assumed.role.session.duration": "1h",
        "assumed.role.credentials.provider": INSTANCE,
    },
)

TURNED = {
    "keys": ({**KEYS, **HERE}, {}, {**AWS, **OURS}),
    "a token": ({**TOKEN, **HERE}, {}, {**AWS, **OURS_TOKEN}),
    "keys without their token": (
        by(f"{HADOOP}.SimpleAWSCredentialsProvider", **TOKEN),
        {},
        {**AWS, **OURS},
    ),
    "anonymous": (by(f"{HADOOP}.AnonymousAWSCredentialsProvider"), {}, {**AWS, "anonymous": True}),
    "anonymous by its old name": (
        by("com.amazonaws.auth.AnonymousAWSCredentials"),
        {},
        {**AWS, "anonymous": True},
    ),
    "the environment": (HERE, VARIABLES, AWS),
    "the environment before keys": (
        by(ENVIRONMENT, f"{HADOOP}.SimpleAWSCredentialsProvider", **KEYS),
        VARIABLES,
        AWS,
    ),
    "keys after an empty environment": (
        by(ENVIRONMENT, f"{HADOOP}.SimpleAWSCredentialsProvider", **KEYS),
        {},
        {**AWS, **OURS},
    ),
    "an instance": (HERE, {}, AWS),
    "an identity of the web": (
        by(f"{AWS_2}.WebIdentityTokenFileCredentialsProvider"),
        WEB,
        AWS,
    ),
    "AWS's own chain": (by(f"{AWS_2}.DefaultCredentialsProvider"), WEB, AWS),
    "a role": (
        ROLE,
        {},
        {**AWS, "role_arn": "arn:aws:iam::1:role/r", "session_name": "n", "external_id": "x"},
    ),
    "an endpoint": (
        {**KEYS, "endpoint": "http://minio:9000/", "path.style.access": "true"},
        {},
        {**OURS, **MINIO, "force_virtual_addressing": False},
    ),
    "an endpoint without its scheme": (
        {**KEYS, "endpoint": "minio:9000", "connection.ssl.enabled": "FALSE"},
        {},
        {**OURS, **MINIO, "force_virtual_addressing": True},
    ),
    "an endpoint with a region": (
        {**KEYS, "endpoint": "https://10.0.0.1", "endpoint.region": "auto"},
        {},
        {
            **OURS,
            "scheme": "https",
            "endpoint_override": "10.0.0.1",
            "region": "auto",
            "force_virtual_addressing": False,
        },
    ),
    "an endpoint of AWS": ({**KEYS, "endpoint": "s3.eu-west-1.amazonaws.com"}, {}, {**AWS, **OURS}),
    "no region": ({**KEYS, "endpoint": "s3.amazonaws.com"}, {}, {**OURS, "scheme": "https"}),
    "a setting of the bucket": (
        {**KEYS, **HERE, "bucket.bucket.access.key": "b", "bucket.other.access.key": "o"},
        {},
        {**AWS, "access_key": "b", "secret_key": "s"},
    ),
    "settings about speed and writing": (
        {
            **KEYS,
            **HERE,
            "threads.max": "9",
            "committer.name": "magic",
            "experimental.input.fadvise": "random",
            "encryption.algorithm": "SSE-KMS",
            "encryption.key": "arn",
            "requester.pays.enabled": "False",
        },
        {},
        {**AWS, **OURS},
    ),
}


@pytest.mark.parametrize("case", TURNED)
def test_settings_become_arguments_of_pyarrow(case):
    options, variables, expected = TURNED[case]
    turned = arguments(options, variables)
    assert turned == expected
    pyarrows = fs.S3FileSystem(**{"region": "eu-west-1", **turned})
    rebuilt = pyarrows.__reduce__()[1][0]
    assert {name: rebuilt[name] for name in turned} == turned


REFUSED = {
    "a name that is not known": ({"new.in.hadoop": "x"}, {}, "fs.s3a.new.in.hadoop is set"),
    "a proxy": ({"proxy.host": "p"}, {}, "fs.s3a.proxy.host is set"),
    "a cache that is off": ({"impl.disable.cache": "true"}, {}, "impl.disable.cache is set"),
    "a cipher of the client's": (
        {"encryption.algorithm": "CSE-KMS"},
        {},
        "encryption.algorithm is CSE-KMS",
    ),
    "a cipher with keys in requests": (
        {"bucket.bucket.server-side-encryption-algorithm": "SSE-C"},
        {},
        "is SSE-C",
    ),
    "a bill": ({"requester.pays.enabled": "true"}, {}, "requester.pays.enabled is true"),
    "a setting of a similar bucket": (
        {"bucket.bucket.two.endpoint": "e"},
        {},
        "fs.s3a.two.endpoint",
    ),
    "a store of keys": ({"security.credential.provider.path": "jceks:"}, {}, "only Hadoop opens"),
    "a variable": ({**KEYS, **HERE, "secret.key": "${env.SECRET}"}, {}, "has a variable"),
    "a path in the endpoint": ({"endpoint": "http://h/p"}, {}, "no host with a port"),
    "another protocol": ({"endpoint": "ftp://h"}, {}, "no host with a port"),
    "an endpoint of AWS without a region": (
        {"endpoint": "vpce-1.s3.eu-west-1.vpce.amazonaws.com"},
        {},
        "endpoint.region is not set",
    ),
    "a region that is asked for": ({"endpoint.region": "ec2"}, {}, "asks elsewhere"),
    "an endpoint of the environment": (
        {**KEYS, **HERE},
        {"AWS_ENDPOINT_URL_S3": "http://minio"},
        "pyarrow would not use",
    ),
    "a class that is not known": (by("com.example.Keys"), {}, "has com.example.Keys"),
    "no keys": (by(f"{HADOOP}.SimpleAWSCredentialsProvider"), {}, "those of no provider"),
    "an instance before the environment": (
        by(INSTANCE, ENVIRONMENT),
        VARIABLES,
        "of the environment, and Spark those of the instance",
    ),
    "an identity that Spark ignores": (HERE, WEB, "web identity, and Spark those of the instance"),
    "a role with keys": (
        {
            **ROLE,
            **KEYS,
            "assumed.role.credentials.provider": f"{HADOOP}.SimpleAWSCredentialsProvider",
        },
        {},
        "other credentials than those of the environment",
    ),
    "a role with a policy": ({**ROLE, "assumed.role.policy": "{}"}, {}, "policy is set"),
    "a role at an endpoint": ({**ROLE, "assumed.role.sts.endpoint": "e"}, {}, "endpoint is set"),
    "a role without a name": ({**ROLE, "assumed.role.arn": ""}, {}, "arn is not set"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_pyarrow_cannot_have_are_refused(case):
    options, variables, reason = REFUSED[case]
    with pytest.raises(errors.OptionError, match=reason) as refused:
        arguments(options, variables)
    assert refused.value.remedy


def test_files_with_profiles_are_credentials_that_spark_does_not_use(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-west-1\n")
    for options, variables in ((HERE, {}), (by(INSTANCE), {}), (by(ENVIRONMENT), {})):
        with pytest.raises(errors.OptionError, match="credentials of the profile"):
            arguments(options, {"HOME": str(tmp_path), **variables})
    assert arguments(HERE, {"HOME": str(tmp_path), **VARIABLES}) == AWS
    assert arguments({**HERE, **KEYS}, {"HOME": str(tmp_path)}) == {**AWS, **OURS}
    (tmp_path / ".aws" / "config").write_text("[default]\nendpoint_url = http://minio\n")
    with pytest.raises(errors.OptionError, match="names an endpoint"):
        arguments({**HERE, **KEYS}, {"HOME": str(tmp_path)})


def test_neither_text_nor_errors_of_settings_have_a_secret():
    planted = "planted"
    secret = dict.fromkeys(("access.key", "secret.key", "session.token", "encryption.key"), planted)
    assert planted not in repr(settings(**secret))
    texts = []
    for options, variables, _ in REFUSED.values():
        try:
            arguments({**secret, **options}, variables)
        except errors.OptionError as refused:
            texts.append(f"{refused} {refused.details}")
    assert len(texts) > 15
    assert not [text for text in texts if planted in text]


def test_settings_come_from_hadoop_with_their_defaults(spark):
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    configuration.set("fs.s3a.secret.key", " <&> Zürich ")
    read = Settings.of(configuration, spark._jvm)
    assert read.get("fs.s3a.secret.key") == "<&> Zürich"
    assert "fs.s3a.secret.key" in [*read.changed("fs.s3a.")]
    assert INSTANCE in read.get("fs.s3a.aws.credentials.provider")
    assert "fs.s3a.aws.credentials.provider" in read.defaults
    configuration.set("fs.s3a.secret.key", "\x01")
    with pytest.raises(errors.OptionError, match="are no XML"):
        Settings.of(configuration, spark._jvm)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with guarded(tmp_path_factory.mktemp("s3")) as store:
        store.filesystem.create_dir("bucket")
        yield store


def of_store(store, keys):
    return {
        "endpoint": f"http://{store.address}",
        "access.key": keys.access,
        "secret.key": keys.secret,
        "session.token": keys.token,
    }


def test_keys_and_tokens_open_the_store_and_others_do_not(store, monkeypatch):
    with store.filesystem.open_output_stream("bucket/a +%b") as file:
        file.write(b"bytes")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def read(options, variables=None):
        system = fs.S3FileSystem(**arguments(options, variables))
        with system.open_input_file("bucket/a +%b") as file:
            return file.read()

    user, lent = of_store(store, store.keys), of_store(store, store.temporary)
    assert read(user) == read(lent) == b"bytes"
    for wrong in ({**user, "secret.key": "other"}, {**lent, "session.token": ""}):
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            read(wrong)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.keys.access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.keys.secret)
    assert read({"endpoint": user["endpoint"]}, dict(os.environ)) == b"bytes"


def test_a_session_without_the_package_of_hadoop_says_so(spark, caplog):
    with caplog.at_level(logging.DEBUG), pytest.raises(errors.OptionError, match="hadoop-aws"):
        filesystem("s3a://bucket/folder", spark)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("hdfs://name/folder", "do not read hdfs://"),
        ("/folder", "a path without a scheme"),
        ("s3a://key:planted@bucket/folder", "names no bucket, or has keys"),
    ],
)
def test_a_uri_that_workers_do_not_read_is_refused(spark, uri, reason):
    with pytest.raises(errors.OptionError, match=reason) as refused:
        filesystem(uri, spark)
    assert "planted" not in str(refused.value)


def test_files_of_one_call_are_in_one_store(spark):
    with pytest.raises(errors.OptionError, match="several file systems"):
        located(spark, ["file:///a", "s3a://bucket/a"])
    assert located(spark, ["file:/a%20b/%25"]) == (fs.LocalFileSystem(), ["/a b/%"])
