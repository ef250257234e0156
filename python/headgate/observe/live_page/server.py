"""The server's thread: it starts, serves and ends without the job's noticing."""

from __future__ import annotations

import asyncio
import html
import logging
import secrets
import socket
import threading
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate._closing import Closing
from headgate.control.descriptors import log_shortage_once
from headgate.control.newcomers import MAX_STRANGERS, Newcomers
from headgate.errors import HeadgateWarning
from headgate.observe.live_page.app import application
from headgate.observe.live_page.events import Events
from headgate.observe.live_page.links import direct, link_to

if TYPE_CHECKING:
    from headgate.observe.state import Source

_LOG: Final = logging.getLogger("headgate.observe")
#: Connections with the token at the same time; beyond, the server answers 503.
_MAX_CONNECTIONS: Final = 64
#: Seconds in which a connection must have shown the token.
_PROOF: Final = 10.0
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
    """A connection. Its log is ours, the application can cut it, and it is a stranger's until it has shown the token.

    Args:
        strangers: the connections of the server that have not shown the token.
    """

    app_state: dict[str, Any]

    def __init__(self, strangers: Newcomers[_Protocol], **server: Any) -> None:
        super().__init__(**server)
        self._strangers = strangers
        self._host = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take the connection. If there are too many strangers, one of them goes."""
        self.logger = _HTTP_LOG
        self.app_state = {
            **self.app_state,
            "abort": transport.abort,
            "has_shown_token": self._has_shown_token,
        }
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_PROOF, transport.abort)
        self._host = (transport.get_extra_info("peername") or ("",))[0]
        crowded_out = self._strangers.came(self, self._host)
        if crowded_out is not None:
            crowded_out.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._has_shown_token()
        super().connection_lost(exc)

    def _has_shown_token(self) -> None:
        """Take the connection off the strangers'."""
        self._strangers.left(self, self._host)
        if self._deadline is not None:
            self._deadline.cancel()


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
            token, folder = secrets.token_urlsafe(32), secrets.token_urlsafe(12)
            app = application(
                source,
                self._events,
                token=token,
                folder=folder,
                port=port,
                host=host,
                behind_proxy=link.behind_proxy,
            )
            config = uvicorn.Config(
                app,
                loop="asyncio",
                http=partial(_Protocol, Newcomers[_Protocol]()),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_STRANGERS + _MAX_CONNECTIONS,
                backlog=_MAX_CONNECTIONS,
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
        self.url = link.with_token(token, folder)
        self.address = f"{direct(host, port)}?token={token}"

    def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            with listener, asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                message = "the live page cannot accept connections, and tries again each second: %s"
                log_shortage_once(runner.get_loop(), _LOG, message)
                runner.run(server.serve(sockets=[listener]))
        except BaseException as error:  # noqa: BLE001 - uvicorn also raises SystemExit; the job goes on
            self.url = self.address = ""
            self._why = f"it failed: {error!r}"
            _LOG.warning("the live page is off from now on, it failed: %r", error)

    def _failed(self, error: Exception) -> None:
        self._server = self._thread = None
        self._why = f"it did not start: {error}"
        warning = HeadgateWarning(f"there is no live page, the server did not start: {error!r}")
        warnings.warn(warning, stacklevel=4)
