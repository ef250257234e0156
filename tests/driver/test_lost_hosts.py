"""Hosts of kept exchanges that are gone: who tells the driver, and what it gives up."""

import socket
import threading

import pytest
from tests.kit.waiting import wait_until

from headgate import ChannelAddress
from headgate.control.address import CoordinatorAddress
from headgate.control.link import control_key
from headgate.spark.driver.host_lookup import HostLookup
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.tasks.kept_locations import KeptLocations
from headgate.spark.tasks.start_host import HostAddress

IDS = {name: bytes.fromhex(name * 16) for name in ("aa", "bb")}
SECRET = bytes(32)


class Driver:
    """A driver whose exchange aa has producers at a host that is gone, and at one that listens."""

    def __init__(self):
        self.given_up = []
        self.hold = threading.Event()
        self.hold.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            gone = closed.getsockname()[1]
        living = self.listener.getsockname()[1]
        self.gone = HostAddress("127.0.0.1", gone, "01" * 16, "7")
        self.living = HostAddress("127.0.0.1", living, "02" * 16, "8")
        self.hosts = KeptHosts()
        for producer, host in enumerate([self.gone, self.living, self.gone]):
            self.hosts.add("aa", producer, 100 + producer, host)
        self.lookup = HostLookup("127.0.0.1", self.give_up)
        for name, exchange_id in IDS.items():
            key = control_key(SECRET, exchange_id)
            self.lookup.register(exchange_id, key, self.hosts, name)

    def give_up(self, executor):
        assert self.hold.wait(30)
        self.given_up.append(executor)

    def producers(self):
        """Return the producers that consumers are told of."""
        return [row[0] for part in self.hosts.messages("aa") for row in part["producers"]]

    def is_quiet(self):
        return not any(one.name == "headgate-give-up" for one in threading.enumerate())


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.lookup.close()
    driver.listener.close()


def test_a_host_that_is_gone_is_given_up_once_however_many_tell(driver):
    driver.hold.clear()
    for _ in range(5):
        driver.lookup.host_lost(IDS["aa"], driver.gone.process)
    assert driver.producers() == [0, 1, 2], "Spark knows first"
    driver.hold.set()
    wait_until(lambda: driver.producers() == [1], "its producers are forgotten")
    driver.lookup.host_lost(IDS["aa"], driver.gone.process)
    wait_until(driver.is_quiet, "nothing more follows")
    assert driver.given_up == ["7"]


def test_nothing_else_is_given_up(driver):
    driver.lookup.host_lost(IDS["aa"], driver.living.process)  # the driver can reach it
    driver.lookup.host_lost(IDS["aa"], "03" * 16)  # nobody knows it
    driver.lookup.host_lost(IDS["bb"], driver.gone.process)  # it serves another exchange
    driver.lookup.host_lost(bytes(16), driver.gone.process)
    wait_until(driver.is_quiet, "nothing follows")
    assert driver.given_up == []
    assert driver.producers() == [0, 1, 2]


def test_what_spark_does_not_give_up_stays_and_is_said(driver, caplog):
    def give_up(_):
        raise RuntimeError("Spark did not replace the executor")

    driver.lookup._give_up = give_up
    driver.lookup.host_lost(IDS["aa"], driver.gone.process)
    wait_until(driver.is_quiet, "it was tried")
    assert driver.producers() == [0, 1, 2]
    assert "Spark did not replace the executor" in caplog.text


def test_a_consumer_tells_the_driver_and_waits_until_it_has_given_up(driver):
    port = driver.lookup.server.port
    places = KeptLocations("aa", CoordinatorAddress("127.0.0.1", port, IDS["aa"], SECRET, 20.0))
    host = driver.gone
    address = ChannelAddress(host.host, host.port, bytes(16), 0, bytes.fromhex(host.process))
    places.lose(address, 30.0)
    assert driver.given_up == ["7"]
    assert driver.producers() == [1]
