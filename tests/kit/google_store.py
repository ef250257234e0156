"""A server that speaks Google Cloud Storage, in this process, which checks who asks as Google does.

gcp-storage-emulator has the objects. A request needs a token that the server has lent to the holder of an account's
key, or to an instance, or one that the key has signed. Anybody may use the bucket ``public``.
"""

import base64
import json
import secrets
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import pytest
from pyarrow import fs

_ACCOUNT = "reader@project.iam.gserviceaccount.com"
#: Paths below which instances of Google's ask for what they are, and for their account and its tokens.
_INSTANCE = "/computeMetadata/v1/"
_ACCOUNTS = "instance/service-accounts/"


@dataclass(frozen=True)
class GoogleStore:
    """A server that only holders of credentials may use.

    Attributes:
        address: host and port.
        key_file: file of an account's key, as Google gives it.
        tokens: tokens that the server has lent.
    """

    address: str
    key_file: Path
    tokens: set

    @property
    def filesystem(self):
        """A file system that may do all."""
        return fs.GcsFileSystem(
            access_token=_lend(self.tokens),
            credential_token_expiration=datetime.now(UTC) + timedelta(hours=1),
            endpoint_override=self.address,
            scheme="http",
            project_id="project",
            retry_time_limit=timedelta(seconds=30),
        )

    @property
    def secrets(self):
        """Texts that no log may have: each line of the key, and the tokens."""
        key = json.loads(self.key_file.read_text())["private_key"]
        return {*key.splitlines()[1:-1], *self.tokens}


@contextmanager
def guarded(folder):
    """Run a :class:`GoogleStore` while the block runs."""
    if find_spec("gcp_storage_emulator") is None:
        pytest.skip(
            "no server of Google's: the package of the extra `test`, gcp-storage-emulator, is not installed"
        )
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from gcp_storage_emulator.server import RequestHandler
    from gcp_storage_emulator.storage import Storage

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    tokens = set()
    guard = {"public_key": key.public_key(), "tokens": tokens}
    handler = type("Guarded", (_Guard, RequestHandler), guard)
    storage = Storage(use_memory_fs=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, storage)) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file = folder / "key.json"
        file.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": "project",
                    "private_key_id": "1",
                    "private_key": pem.decode(),
                    "client_email": _ACCOUNT,
                    "client_id": "1",
                    "token_uri": f"http://{address}/token",
                }
            )
        )
        try:
            yield GoogleStore(address, file, tokens)
        finally:
            server.shutdown()


def _lend(tokens):
    token = secrets.token_hex(16)
    tokens.add(token)
    return token


class _Guard:
    """Answers requests for tokens, and all that have none; before the emulator's class of handlers."""

    public_key = None
    tokens: ClassVar = set()

    def parse_request(self):
        if not super().parse_request():
            return False
        answer = self.answer()
        if answer is None:
            return True
        status, value = answer
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return False

    def answer(self):
        """Return status and value of the guard's answer; None if the request may pass."""
        lent = {"access_token": "", "expires_in": 3600, "token_type": "Bearer"}
        if self.path.startswith(_INSTANCE):
            if _ACCOUNTS in self.path and "/token" in self.path:
                return 200, {**lent, "access_token": _lend(self.tokens)}
            account = {"email": _ACCOUNT, "aliases": ["default"], "scopes": []}
            if f"{_ACCOUNTS}default/" not in self.path:
                account = {"default": account}
            return (200, account) if _ACCOUNTS in self.path else (404, {})
        if self.path == "/token":
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.is_signed(parse_qs(body).get("assertion", [""])[0]):
                return 200, {**lent, "access_token": _lend(self.tokens)}
            return 400, {"error": "invalid_grant", "error_description": "another key"}
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        is_known = kind == "Bearer" and (token in self.tokens or self.is_signed(token))
        if is_known or (not kind and "/b/public/" in self.path):
            return None
        return 401, {"error": {"code": 401, "message": "who asks?", "errors": []}}

    def is_signed(self, text):
        """Return True for a text that the account's key has signed."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        signed, _, signature = text.rpartition(".")
        try:
            decoded = base64.urlsafe_b64decode(signature + "==")
            self.public_key.verify(decoded, signed.encode(), PKCS1v15(), SHA256())
        except (ValueError, InvalidSignature):
            return False
        return True
