"""The user's call for the live page."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from headgate._arguments import takes, text, whole
from headgate.observe._extras import require
from headgate.observe.runs import RUNS

if TYPE_CHECKING:
    from headgate.observe.live_page.server import Page

_LOCK: Final = threading.Lock()
_pages: Final[dict[tuple[str, int], Page]] = {}


@takes(port=whole(0, 65535), host=text)
def ui(port: int = 0, host: str = "127.0.0.1") -> Page:
    """Open a web page that shows this driver's runs live, and return the page with its link.

    The server is a thread of the driver. Only somebody with the link's token sees the page. A second call with the same
    arguments returns the page that is open. If the server cannot start, there is a warning and a page without a link.

    Args:
        port: to listen at; 0 takes a free one.
        host: address to listen at. Any but a loopback address lets other hosts in, in the clear: give it only on a
            network that you trust.

    Returns:
        The page: ``url``, ``address``, ``close()``; a context manager, and a link in a notebook.

    Raises:
        PackageNotFound: the extra "ui" is not installed.
    """
    require("headgate.spark.ui()", "ui", "starlette", "uvicorn")
    from headgate.observe.live_page.server import Page  # noqa: PLC0415 - an extra

    with _LOCK:
        page = _pages.get((host, port))
        if page is None or not page.url:
            page = _pages[host, port] = Page(RUNS.state, port=port, host=host)
        return page
