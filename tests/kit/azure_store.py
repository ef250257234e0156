"""A server that speaks Azure's Blob API, a process of Azurite, which checks signatures as Azure does."""

import base64
import os
import re
import secrets
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

from pyarrow import fs
from tests.kit.waiting import wait_until


@dataclass(frozen=True)
class AzureStore:
    """A server that only holders of keys may use.

    Attributes:
        address: host and port.
        keys: name of an account -> its key.
    """

    address: str
    keys: dict

    def filesystem(self, account):
        """A file system of an account, which may do all."""
        return fs.AzureFileSystem(
            account,
            account_key=self.keys[account],
            blob_storage_authority=self.address,
            blob_storage_scheme="http",
            dfs_storage_authority=self.address,
            dfs_storage_scheme="http",
        )


@contextmanager
def guarded(program, folder, *accounts):
    """Run an :class:`AzureStore` with these accounts while the block runs."""
    keys = {name: base64.b64encode(secrets.token_bytes(64)).decode() for name in accounts}
    accounts_and_keys = ";".join(f"{name}:{key}" for name, key in keys.items())
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    log = folder / "azurite.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [program, *options, "--blobHost", "127.0.0.1", "--blobPort", "0"],
            cwd=folder,
            env={**os.environ, "AZURITE_ACCOUNTS": accounts_and_keys},
            stdout=file,
            stderr=file,
        )

    def address():
        line = re.search(r"listens on http://([\d.]+:\d+)", log.read_text())
        return line and line[1]

    try:
        wait_until(lambda: address() or process.poll() is not None, "the server listens", 120)
        assert process.poll() is None, log.read_text()
        yield AzureStore(address(), keys)
    finally:
        process.kill()
        process.wait()
