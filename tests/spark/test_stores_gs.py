"""Hadoop's settings of Google Cloud Storage as arguments of pyarrow's file system, tried on a server that checks tokens."""

import os
import pickle
import subprocess
import sys
from datetime import timedelta

import pytest
from pyarrow import fs
from tests.kit.google_store import guarded

from headgate import errors
from headgate.spark import filesystem
from headgate.spark.stores import gs
from headgate.spark.stores.settings import Settings

DEFAULTS = {"auth.type": "COMPUTE_ENGINE", "block.size": "64m", "unknown.default": "1"}
VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
KEY = {VARIABLE: "/keys/a.json"}
OF_EXECUTORS = {f"spark.executorEnv.{VARIABLE}": "/keys/a.json"}
BY_KEY = {
    "auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
    "auth.service.account.json.keyfile": "/keys/../keys/a.json",
}
ANYBODY = {"auth.type": "UNAUTHENTICATED"}
BY_DEFAULT = {"auth.type": "APPLICATION_DEFAULT"}
RETRIES = {"retry_time_limit": timedelta(minutes=1)}


def settings(**options):
    named = {**DEFAULTS, **options}.items()
    values = {n if n.startswith("google.") else f"fs.gs.{n}": value for n, value in named}
    return Settings(values, frozenset(f"fs.gs.{n}" for n in DEFAULTS.keys() - options.keys()))


def arguments(options, variables=None, confs=None, is_local=True):
    of_driver = {"HOME": "/nowhere", **(variables or {})}
    environment = gs.Environment.of(of_driver, confs or {}, is_local=is_local)
    return gs.arguments(settings(**options), environment)


TURNED = {
    "an instance": ({}, {}, {}, {}),
    "an instance of a cluster": ({}, {}, {}, {"is_local": False}),
    "anybody": (ANYBODY, {}, {"anonymous": True}, {"is_local": False}),
    "anybody, with a key at hand": (ANYBODY, KEY, {"anonymous": True}, {}),
    "the file of a key": (BY_KEY, KEY, {}, {}),
    "a file that executors have": (BY_KEY, KEY, {}, {"confs": OF_EXECUTORS, "is_local": False}),
    "Google's own chain": (BY_DEFAULT, KEY, {}, {}),
    "Google's own chain on an instance": (BY_DEFAULT, {}, {}, {"is_local": False}),
    "the default endpoint": ({"storage.root.url": "https://storage.googleapis.com"}, {}, {}, {}),
    "an endpoint": (
        {"storage.root.url": "http://localhost:4443/", "storage.service.path": "storage/v1/"},
        {},
        {"scheme": "http", "endpoint_override": "localhost:4443"},
        {},
    ),
    "settings about speed and writing": (
        {
            "block.size": "1",
            "http.max.retry": "3",
            "inputstream.fadvise": "RANDOM",
            "outputstream.upload.chunk.size": "1",
            "requester.pays.mode": "disabled",
            "client.type": "HTTP_API_CLIENT",
        },
        {},
        {},
        {},
    ),
}


@pytest.mark.parametrize("case", TURNED)
def test_settings_become_arguments_of_pyarrow(case):
    options, variables, expected, more = TURNED[case]
    turned = arguments(options, variables, **more)
    assert turned == {**RETRIES, **expected}
    rebuilt = fs.GcsFileSystem(**{**turned, "anonymous": True}).__reduce__()[1][0]
    assert {name: rebuilt[name] for name in turned} == turned


REFUSED = {
    "a name that is not known": ({"new.in.gcs": "x"}, {}, "fs.gs.new.in.gcs is set"),
    "a name for all of Google's": ({"google.cloud.auth.type": "x"}, {}, "google.cloud.auth.type"),
    "a proxy": ({"proxy.address": "p:1"}, {}, "fs.gs.proxy.address is set"),
    "a header": ({"storage.http.headers.a": "b"}, {}, "storage.http.headers.a is set"),
    "a key of the client's": ({"encryption.key": "planted"}, {}, "fs.gs.encryption.key is set"),
    "a handler of rights": ({"authorization.handler.impl": "c"}, {}, "handler.impl is set"),
    "another account": ({"auth.impersonation.service.account": "a"}, {}, "account is set"),
    "a bill": ({"requester.pays.mode": "AUTO"}, {}, "requester.pays.mode is AUTO"),
    "another protocol": ({"client.type": "STORAGE_CLIENT"}, {}, "client.type is STORAGE_CLIENT"),
    "unpacked files": (
        {"inputstream.support.gzip.encoding.enable": "true"},
        {},
        "gzip.encoding.enable is true",
    ),
    "another path": ({"storage.service.path": "storage/v2/"}, {}, "is storage/v2/"),
    "a path in the endpoint": ({"storage.root.url": "http://h/p"}, {}, "no host with a port"),
    "another server of the environment": ({}, {"STORAGE_EMULATOR_HOST": "h"}, "has STORAGE_EMUL"),
    "metadata of another host": ({}, {"GCE_METADATA_HOST": "h"}, "has GCE_METADATA_HOST"),
    "a key before an instance": ({}, KEY, "the credentials of the instance"),
    "no key": (BY_KEY, {}, "does not name that of"),
    "another key": (BY_KEY, {VARIABLE: "/keys/b.json"}, "does not name that of"),
    "no file": ({**BY_KEY, "auth.service.account.json.keyfile": ""}, KEY, "does not name that of"),
    "tokens of a class": ({"auth.type": "ACCESS_TOKEN_PROVIDER"}, {}, "is ACCESS_TOKEN_PROVIDER"),
    "tokens of a user": ({"auth.type": "USER_CREDENTIALS"}, {}, "is USER_CREDENTIALS"),
    "a variable": ({**BY_KEY, "auth.type": "${type}"}, KEY, "has a variable"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_pyarrow_cannot_have_are_refused(case):
    options, variables, reason = REFUSED[case]
    with pytest.raises(errors.OptionError, match=reason) as refused:
        arguments(options, variables)
    assert refused.value.remedy
    assert "planted" not in f"{refused.value} {refused.value.details}"


def test_credentials_that_executors_may_not_have_are_refused(tmp_path):
    other = {f"spark.executorEnv.{VARIABLE}": "/keys/b.json"}
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    home = {"HOME": str(tmp_path)}
    assert arguments(BY_DEFAULT, home) == RETRIES
    with pytest.raises(errors.OptionError, match="the credentials of the instance"):
        arguments({}, home)
    for options, variables in ((BY_KEY, KEY), (BY_DEFAULT, KEY), (BY_DEFAULT, home)):
        for confs in ({}, other):
            with pytest.raises(errors.OptionError, match="executors may not have"):
                arguments(options, variables, confs, is_local=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with guarded(tmp_path_factory.mktemp("gs")) as store:
        for bucket in ("bucket", "public"):
            store.filesystem.create_dir(bucket)
            with store.filesystem.open_output_stream(f"{bucket}/a +%b") as file:
                file.write(b"bytes")
        yield store


READ = """
import pickle, sys
with pickle.loads(bytes.fromhex(sys.argv[1])).open_input_file(sys.argv[2] + "/a +%b") as file:
    print(file.read())
"""


def read(store, options, variables, bucket="bucket"):
    """Return what a process with these variables reads, as a worker does."""
    root = {"storage.root.url": f"http://{store.address}/"}
    turned = {**arguments({**root, **options}, variables), "retry_time_limit": timedelta(seconds=5)}
    pickled = pickle.dumps(fs.GcsFileSystem(**turned)).hex()
    environment = {**os.environ, "HOME": "/nowhere", **variables}
    done = subprocess.run(
        [sys.executable, "-c", READ, pickled, bucket],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def test_keys_and_instances_open_the_store_and_others_do_not(store, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = {VARIABLE: str(store.key_file)}
    by_key = {**BY_KEY, "auth.service.account.json.keyfile": str(store.key_file)}
    instance = {"GCE_METADATA_HOST": store.address, "GCE_METADATA_ROOT": store.address}
    assert read(store, by_key, key) == "b'bytes'"
    assert read(store, BY_DEFAULT, key) == "b'bytes'"
    assert read(store, {}, instance) == "b'bytes'"
    assert read(store, ANYBODY, {}, "public") == "b'bytes'"
    assert "who asks?" in read(store, ANYBODY, {})
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    text = store.key_file.read_text()
    old = text[text.index("-----BEGIN") : text.index("-----END")]
    new = other.decode().split("-----END")[0].replace("\n", "\\n")
    (tmp_path / "key.json").write_text(text.replace(old, new))
    wrong = {VARIABLE: str(tmp_path / "key.json")}
    assert "who asks?" in read(store, BY_DEFAULT, wrong)


def test_a_session_without_the_package_of_google_says_so(spark):
    with pytest.raises(errors.OptionError, match="gcs-connector"):
        filesystem("gs://bucket/folder", spark)
