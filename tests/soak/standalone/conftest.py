"""A network, a cluster on it and the packed environment: made once, and nothing is left of them."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# The tests share modules; importlib mode puts no folder on the path by itself.
sys.path.append(str(Path(__file__).parent))

from namespaces import PREFIX, Network, why_not
from packed_environment import build_wheel, pack
from standalone_cluster import DRIVER, MASTER, WORKERS, Cluster, Session

WHY_NOT = why_not()


@pytest.fixture(scope="module")
def cluster():
    """A master and two workers, each on a host of its own; the driver's host is still empty."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    # Not a folder of pytest's: that would be kept for three runs, and this is large.
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        (folder / "wheel").mkdir()
        archive = pack(folder, build_wheel(folder / "wheel"))
        network = Network(MASTER, *WORKERS, DRIVER)
        with network:
            made = Cluster(network, folder, archive)
            made.start()
            yield made
        assert network.names() == []
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def session(cluster):
    """A session of Spark on the driver's host."""
    session = Session(cluster)
    try:
        answer = session.hear(180)
        assert answer is not None
        assert answer["said"] == "started"
        yield session
    finally:
        session.close()
