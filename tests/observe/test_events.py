"""The stream of events, without a server: slow clients, and what many clients share."""

import asyncio

from tests.kit.runs import state

from headgate.observe.live_page.events import Events


def scope(abort=lambda: None):
    return {"type": "http", "query_string": b"", "state": {"abort": abort}}


async def never():
    await asyncio.Event().wait()


def test_a_client_that_takes_no_bytes_is_dropped_and_counted():
    aborted = []

    async def stuck(message):
        if message["type"] == "http.response.body":
            await never()

    async def serve():
        events = Events(state, period=0.0, patience=0.01)
        await events(scope(lambda: aborted.append(True)), never, stuck)
        return events

    events = asyncio.run(serve())
    assert (events.dropped, events.clients, aborted) == (1, 0, [True])


def test_a_client_that_goes_is_not_counted_as_dropped():
    bodies = []

    async def serve():
        gone = asyncio.Event()
        events = Events(state, period=60.0)

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            bodies.append(message)
            gone.set()

        await events(scope(), receive, send)
        return events

    events = asyncio.run(serve())
    assert (events.dropped, events.clients) == (0, 0)
    assert bodies[-1] == {"type": "http.response.body", "body": b""}


def test_the_state_is_asked_for_once_for_all_clients():
    asked = []

    def source():
        asked.append(True)
        return state()

    async def serve():
        events = Events(source, period=60.0)
        gone = asyncio.Event()
        taken = []

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            taken.append(message)
            if sum(bool(one.get("body")) for one in taken) == 3:
                gone.set()

        await asyncio.gather(*(events(scope(), receive, send) for _ in range(3)))
        return events

    events = asyncio.run(serve())
    assert (len(asked), events.clients) == (1, 0)
