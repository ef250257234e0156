"""The page's application: its files, the state as JSON and as a report, events and metrics, all behind the guard."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from headgate.observe.live_page.events import dumps
from headgate.observe.live_page.guard import Guard

if TYPE_CHECKING:
    from starlette.requests import Request

    from headgate.observe.live_page.events import Events
    from headgate.observe.state import Source

_FOLDER: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def application(
    source: Source,
    events: Events,
    *,
    token: str,
    folder: str,
    port: int,
    host: str,
    behind_proxy: bool,
) -> Starlette:
    """Return the application. All of it runs on the server's one thread.

    Args:
        source: returns the state.
        events: the stream of events.
        token: what a request must know.
        folder: under which a browser that has the token finds all paths.
        port: that the server listens at.
        host: address that it is bound to.
        behind_proxy: True if a proxy of Jupyter's is in front.
    """

    async def state(_: Request) -> Response:
        return Response(dumps(source()), media_type="application/json")

    async def report(_: Request) -> Response:
        # Only who saves a report needs it.
        from headgate.observe.report.page import html  # noqa: PLC0415

        return Response(html(source()), media_type="text/html")

    async def metrics(_: Request) -> Response:
        # Only a scraper needs it.
        from headgate.observe.prometheus import CONTENT_TYPE, exposition  # noqa: PLC0415

        text = exposition(source, clients=events.clients, dropped=events.dropped)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    guard = Middleware(
        Guard,
        token=token,
        folder=folder,
        cookie=f"headgate_{port}",
        host=host,
        behind_proxy=behind_proxy,
    )
    routes = [
        *(Route(path, partial(_file, name, kind)) for path, (name, kind) in _FILES.items()),
        Route("/state.json", state),
        Route("/report.html", report),
        Route("/metrics", metrics),
        Route("/events", events),
    ]
    return Starlette(routes=routes, middleware=[guard])


async def _file(name: str, kind: str, _: Request) -> Response:
    # Small, and on a local disk: reading it takes no longer than handing it to another thread.
    return Response((_FOLDER / name).read_bytes(), media_type=kind)
