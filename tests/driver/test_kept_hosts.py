"""Hosts of kept exchanges that are gone: who tells the driver, and what it gives up."""

import socket
import threading

import pytest
from tests.driver.served import serving
from tests.faults.patience import wait_until

from headgate import ChannelAddress
from headgate.control.place import Place
from headgate.spark.driver.kept.places import KeptPlaces, PlacesOfExchange
from headgate.spark.driver.kept_hosts import KeptHosts
from headgate.spark.tasks.places import Places
from headgate.spark.tasks.start_host import HostAddress
from headgate.spark.wire.channel import control_key

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
        self.placed = KeptPlaces()
        for producer, host in enumerate([self.gone, self.living, self.gone]):
            self.placed.add("aa", producer, 100 + producer, host)
        self.hosts = KeptHosts(self.give_up)
        for name, exchange_id in IDS.items():
            self.hosts.register(exchange_id, PlacesOfExchange(self.placed, name))

    def give_up(self, executor):
        assert self.hold.wait(30)
        self.given_up.append(executor)

    def producers(self):
        """Return the producers that consumers are told of."""
        return [row[0] for one in self.hosts.places(IDS["aa"]) for row in one["producers"]]

    def is_quiet(self):
        return not any(one.name == "headgate-give-up" for one in threading.enumerate())


@pytest.fixture
def driver():
    found = Driver()
    yield found
    found.listener.close()


def test_a_host_that_is_gone_is_given_up_once_however_many_tell(driver):
    driver.hold.clear()
    for _ in range(5):
        driver.hosts.host_lost(IDS["aa"], driver.gone.process)
    assert driver.producers() == [0, 1, 2], "Spark knows first"
    driver.hold.set()
    wait_until(lambda: driver.producers() == [1], "its producers are forgotten")
    driver.hosts.host_lost(IDS["aa"], driver.gone.process)
    wait_until(driver.is_quiet, "nothing more follows")
    assert driver.given_up == ["7"]


def test_nothing_else_is_given_up(driver):
    driver.hosts.host_lost(IDS["aa"], driver.living.process)  # the driver can reach it
    driver.hosts.host_lost(IDS["aa"], "03" * 16)  # nobody knows it
    driver.hosts.host_lost(IDS["bb"], driver.gone.process)  # it serves another exchange
    driver.hosts.host_lost(bytes(16), driver.gone.process)
    wait_until(driver.is_quiet, "nothing follows")
    assert driver.given_up == []
    assert driver.producers() == [0, 1, 2]


def test_what_spark_does_not_give_up_stays_and_is_said(driver, caplog):
    def give_up(_):
        raise RuntimeError("Spark did not replace the executor")

    driver.hosts._give_up = give_up
    driver.hosts.host_lost(IDS["aa"], driver.gone.process)
    wait_until(driver.is_quiet, "it was tried")
    assert driver.producers() == [0, 1, 2]
    assert "Spark did not replace the executor" in caplog.text


def test_a_consumer_tells_the_driver_and_waits_until_it_has_given_up(driver):
    exchange_id = IDS["aa"]
    keys = {exchange_id: control_key(SECRET, exchange_id)}
    with serving(driver.hosts, keys=keys) as server:
        places = Places("aa", Place("127.0.0.1", server.port, exchange_id, SECRET, 20.0))
        host = driver.gone
        address = ChannelAddress(host.host, host.port, bytes(16), 0, bytes.fromhex(host.process))
        places.lose(address, 30.0)
        assert driver.given_up == ["7"]
        assert driver.producers() == [1]
