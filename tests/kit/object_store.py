"""A server that speaks S3, a process of moto's, which checks keys and signatures as AWS does."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs
from tests.kit.waiting import wait_until

REGION = "us-east-1"
#: Permits a user and a role all that S3 can do.
_ALL = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":"*"}]}'
_IAM = {"Version": "2010-05-08"}
_STS = {"Version": "2011-06-15"}


@dataclass(frozen=True)
class Keys:
    """Keys of a user, or temporary ones of a role."""

    access: str
    secret: str
    token: str = ""


@dataclass(frozen=True)
class ObjectStore:
    """A server that only holders of keys may use.

    Attributes:
        process: the server.
        address: host and port.
        keys: of a user who may do all.
        temporary: of a role that may do all, with a token.
    """

    process: subprocess.Popen
    address: str
    keys: Keys
    temporary: Keys

    @property
    def filesystem(self):
        """The file system of the user, who may make buckets."""
        return fs.S3FileSystem(
            access_key=self.keys.access,
            secret_key=self.keys.secret,
            endpoint_override=self.address,
            scheme="http",
            region=REGION,
            allow_bucket_creation=True,
            request_timeout=60,
        )


@contextmanager
def served(folder):
    """Run moto's server while the block runs; give its process and its address."""
    if find_spec("moto") is None or find_spec("flask_cors") is None:
        pytest.skip(
            "no server of S3: the packages of the extra `test`, moto and flask-cors, are not installed"
        )
    log = folder / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    # Keys of this machine are no business of the server's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        wait_until(lambda: address(log) or process.poll() is not None, "the server listens", 120)
        assert process.poll() is None, log.read_text()
        yield process, address(log)
    finally:
        process.kill()
        process.wait()


def address(log):
    """Return host and port that the server has said; None before."""
    line = re.search(r"Running on http://([\d.]+:\d+)", log.read_text())
    return line and line[1]


@contextmanager
def guarded(folder):
    """Run an :class:`ObjectStore` while the block runs."""
    with served(folder) as (process, where):

        def ask(service, action, **parameters):
            scope = f"any/20260101/{REGION}/{service}/aws4_request"
            signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
            data = urlencode({"Action": action, **parameters}).encode()
            request = Request(f"http://{where}/", data, {"Authorization": signed})
            with urlopen(request) as answer:
                return dict(re.findall(r"<(\w+)>([^<]+)</", answer.read().decode()))

        ask("iam", "CreateUser", UserName="user", **_IAM)
        ask("iam", "PutUserPolicy", UserName="user", PolicyName="all", PolicyDocument=_ALL, **_IAM)
        key = ask("iam", "CreateAccessKey", UserName="user", **_IAM)
        role = ask("iam", "CreateRole", RoleName="role", AssumeRolePolicyDocument="{}", **_IAM)
        ask("iam", "PutRolePolicy", RoleName="role", PolicyName="all", PolicyDocument=_ALL, **_IAM)
        lent = ask("sts", "AssumeRole", RoleArn=role["Arn"], RoleSessionName="tests", **_STS)
        # From here on each request needs a signature.
        switch = f"http://{where}/moto-api/reset-auth"
        with urlopen(Request(switch, b"0", {"Content-Type": "text/plain"})):
            pass
        yield ObjectStore(
            process,
            where,
            Keys(key["AccessKeyId"], key["SecretAccessKey"]),
            Keys(lent["AccessKeyId"], lent["SecretAccessKey"], lent["SessionToken"]),
        )
