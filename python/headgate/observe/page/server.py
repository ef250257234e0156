"""The server's thread: it starts, serves and ends without the job's noticing."""

from __future__ import annotations

import html
import logging
import secrets
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate._closing import Closing
from headgate.errors import HeadgateWarning
from headgate.observe.page.app import application
from headgate.observe.page.events import Events
from headgate.observe.page.links import direct, link_to

if TYPE_CHECKING:
    import asyncio

    from headgate.observe.view import Source

_LOG: Final = logging.getLogger("headgate.observe")
#: Requests and open connections at the same time; beyond, the server answers 503.
_MAX_CONNECTIONS: Final = 64
#: Bytes of a request's head.
_MAX_HEAD: Final = 16384
#: Ms after which the kernel ends a connection whose bytes nobody takes.
_UNREAD_MS: Final = 10_000
#: Seconds that close() waits for the thread.
_CLOSING: Final = 5.0


class _FirstFailure(logging.Filter):
    """Lets the first error of the application through. The rest is what strangers send, and broken connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for the first record with an exception."""
        is_first = record.exc_info is not None and not hasattr(self, "_had")
        if is_first:
            self._had = True
        return is_first


class _Protocol(H11Protocol):  # type: ignore[misc]
    """A connection. Its log is ours, and the application can cut it."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take the connection."""
        self.logger = _HTTP_LOG
        self.app_state = {**self.app_state, "abort": transport.abort}
        super().connection_made(transport)


_HTTP_LOG: Final = logging.getLogger("headgate.observe.http")
_HTTP_LOG.addFilter(_FirstFailure())


class Page(Closing):
    """The live page of this process. Made by :func:`headgate.spark.ui`; as a context manager it closes at the end.

    Attributes:
        url: the link with its token; behind a proxy of Jupyter's only its path. Empty if the server did not start.
        address: the address on this host with its token, for ``python -m headgate top`` and scrapers. Empty likewise.
    """

    def __init__(self, source: Source, *, port: int = 0, host: str = "127.0.0.1") -> None:
        """Start the server.

        Args:
            source: returns the state; called in the server's thread only.
            port: to listen at; 0 takes a free one.
            host: address to listen at.
        """
        self.url = self.address = ""
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._events = Events(source)
        self._why = ""
        try:
            self._start(source, port, host)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            self._failed(error)

    def close(self) -> None:
        """End the server and its connections. A second call does nothing."""
        server, thread = self._server, self._thread
        self.url = self.address = ""
        self._server = self._thread = None
        self._why = self._why or "closed"
        if server is not None and thread is not None:
            self._events.stop()
            server.should_exit = True
            thread.join(_CLOSING)

    def __repr__(self) -> str:
        """Return the link."""
        return f"<headgate page at {self.url}>" if self.url else f"<headgate page: {self._why}>"

    def _repr_html_(self) -> str:
        if not self.url:
            return f"<div>headgate page: {html.escape(self._why)}</div>"
        link = html.escape(self.url, quote=True)
        return (
            f'<div>headgate page: <a href="{link}" target="_blank" rel="noopener">{link}</a><br>'
            "It does not open? <code>headgate.spark.report()</code> writes a file instead.</div>"
        )

    def _start(self, source: Source, port: int, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_MAX_CONNECTIONS)
        try:
            # Connections inherit it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
            port = listener.getsockname()[1]
            link = link_to(host, port)
            token = secrets.token_urlsafe(32)
            app = application(
                source,
                self._events,
                token=token,
                port=port,
                host=host,
                behind_proxy=link.behind_proxy,
            )
            config = uvicorn.Config(
                app,
                loop="asyncio",
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=_MAX_CONNECTIONS,
                h11_max_incomplete_event_size=_MAX_HEAD,
                timeout_graceful_shutdown=1,
            )
            self._server = uvicorn.Server(config)
            self._thread = threading.Thread(
                target=self._serve, args=(self._server, listener), name="headgate-page", daemon=True
            )
            self._thread.start()
        except BaseException:
            listener.close()
            raise
        self.url = link.with_token(token)
        self.address = f"{direct(host, port)}?token={token}"

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            with listener:
                server.run(sockets=[listener])
        except BaseException as error:  # noqa: BLE001 - uvicorn also raises SystemExit; the job goes on
            self.url = self.address = ""
            self._why = f"it failed: {error!r}"
            _LOG.warning("the live page is off from now on, it failed: %r", error)

    def _failed(self, error: Exception) -> None:
        self._server = self._thread = None
        self._why = f"it did not start: {error}"
        warning = HeadgateWarning(f"there is no live page, the server did not start: {error!r}")
        warnings.warn(warning, stacklevel=4)
