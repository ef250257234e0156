"""One broker for all tests of this folder, which leaves no process and no file."""

import os

import pytest
from tests.soak.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker():
    jars = os.environ.get("HEADGATE_TEST_KAFKA")
    if jars is None:
        pytest.fail("these tests need a broker: scripts/kafka.sh tests/soak/kafka")
    with Broker(jars) as running:
        yield running
    assert not running.folder.exists()
    assert running._process is None
