"""Two hosts and the link between them: network namespaces, which only root may create."""

import contextlib
import os
import shutil
import subprocess
import uuid

import pytest

ADDRESSES = ("10.213.7.1", "10.213.7.2")


def ip(*words):
    return subprocess.run(["ip", *words], check=False, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """Yield the names of two linked namespaces. The ends of the link have the same names."""
    if os.geteuid() != 0:
        pytest.skip("only root may create network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command")
    names = [f"hg{uuid.uuid4().hex[:8]}" for _ in ADDRESSES]
    with contextlib.ExitStack() as stack:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            for words in (
                ["link", "set", name, "netns", name],
                ["-n", name, "addr", "add", f"{address}/24", "dev", name],
                ["-n", name, "link", "set", name, "up"],
                ["-n", name, "link", "set", "lo", "up"],
            ):
                done = ip(*words)
                if done.returncode:
                    pytest.skip(f"no link between namespaces here: {done.stderr.strip()}")
        yield names


def on(host):
    """Return the prefix of a command that runs on a host."""
    return ["ip", "netns", "exec", host]
