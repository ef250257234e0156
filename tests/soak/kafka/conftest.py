"""One broker for all tests of this folder, which leaves no process and no file."""

import os
import sys
from pathlib import Path

import pytest
from tests.faults.watchdog import pytest_runtest_protocol
from tests.soak.kafka.broker import Broker

# The kit of sinks, which finds its parts by their plain names.
sys.path.insert(0, str(Path(__file__).parents[2] / "sink"))

#: pytest finds the hook by its name here.
__all__ = ["pytest_runtest_protocol"]


@pytest.fixture(scope="session")
def broker():
    jars = os.environ.get("HEADGATE_TEST_KAFKA")
    if jars is None:
        pytest.fail("these tests need a broker: scripts/kafka.sh tests/soak/kafka")
    with Broker(jars) as running:
        yield running
    assert not running.folder.exists()
    assert running._process is None
