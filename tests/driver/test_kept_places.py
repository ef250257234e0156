"""The driver's knowledge of hosts, against a plain dictionary."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.control.messages import Message
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.tasks.start_host import HostAddress
from headgate.spark.wire import CODEC

HOSTS = [HostAddress("10.0.0.1", 4000 + number, "ab" * 15 + f"0{number}") for number in range(4)]


def told(places, exchange):
    """Return producer -> attempt and host, as a consumer learns them."""
    hosts, placed, flags = [], [], []
    for fields in places.messages(exchange):
        message = CODEC.decode(CODEC.encode(Message("HOSTS", fields)))
        hosts += message["hosts"]
        placed += message["producers"]
        flags.append(message["is_last"])
    assert flags == [False] * (len(flags) - 1) + [True]
    return {producer: (attempt, HostAddress(*hosts[at])) for producer, attempt, at in placed}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.one_of(st.integers(0, 5), st.integers(0, 1200)),
            st.integers(0, 2**40),
            st.sampled_from(HOSTS),
        )
    )
)
def test_the_newest_report_of_a_producer_counts(reports):
    places, model = KeptHosts(), {"a": {}, "b": {}, "c": {}}
    for exchange, producer, attempt, host in reports:
        places.add(exchange, producer, attempt, host)
        model[exchange][producer] = (attempt, host)
    for exchange, expected in model.items():
        assert told(places, exchange) == expected


def test_the_newest_host_of_an_executor_serves_all_that_it_has_kept():
    places = KeptHosts()
    first, other = (replace(HOSTS[n], executor=f"{n}") for n in (0, 1))
    second = replace(HOSTS[2], executor="0")
    places.add("a", 0, 7, first)
    places.add("a", 1, 8, other)
    places.add("b", 0, 9, second)
    as_told = [replace(host, executor="") for host in (second, other)]
    assert told(places, "a") == {0: (7, as_told[0]), 1: (8, as_told[1])}
    assert places.host("a", first.process) is None, "a report of its loss is out of date"
    assert places.host("a", second.process) == second
    places.lose(second)
    assert told(places, "a") == {1: (8, as_told[1])}
    assert told(places, "b") == {}


def test_many_producers_take_several_messages():
    places = KeptHosts()
    for producer in range(1201):
        places.add("a", producer, 7, HOSTS[producer % 4])
    assert len(places.messages("a")) == 10
    assert len(told(places, "a")) == 1201
