"""Refuses each request without the token or with a Host that is not ours, before the ASGI application gets it."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Nothing of another origin is loaded, run, shown or sent to, and no page of another origin frames this one.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
#: Follows the link without its token. A redirect would not do: after a click on another site's page, such as a
#: notebook, browsers leave out a SameSite=Strict cookie on redirects, but not where our own page leads on.
_ENTER: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Headgate</title><link rel="icon" href="{0}icon.svg">'
    '<meta http-equiv="refresh" content="0; url={0}"><p><a href="{0}">Headgate</a></p></html>'
)


class Guard:
    """Refuses each request without the token, and those for another host, before they reach the application.

    Args:
        app: the application.
        token: its secret.
        folder: each path is also found under it. Browsers send a cookie to all ports of a host, but only to paths
            under the cookie's own, and no program at another port knows this one.
        cookie: name of the cookie that holds the token; it has the port, since several pages may be open.
        host: the address that the server is bound to.
        behind_proxy: True if a proxy of Jupyter's is in front, which passes on its own Host.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        folder: str,
        cookie: str,
        host: str,
        behind_proxy: bool,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._folder = f"/{folder}/"
        self._cookie = cookie
        self._names = None if behind_proxy else _names_of(host)
        self._any_address = host in {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on; all answers get the headers that lock browsers in."""
        if scope["type"] != "http":
            return

        async def locked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._answer(scope)(scope, receive, locked)

    def _answer(self, scope: Scope) -> ASGIApp:
        headers = Headers(scope=scope)
        candidate = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self._is_ours(headers.get("host", "")):
            return PlainTextResponse("this Host is not served here\n", 403)
        if not any(
            [self._is_token(candidate), self._has_cookie(headers), self._has_bearer(headers)]
        ):
            return PlainTextResponse("open the link that headgate.spark.ui() shows\n", 403)
        scope["state"]["has_shown_token"]()
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("only GET and HEAD\n", 405)
        is_in_folder = scope["path"].startswith(self._folder)
        if is_in_folder:
            scope["path"] = "/" + scope["path"].removeprefix(self._folder)
        if scope["path"] == "/" and self._is_token(candidate):
            return self._enter(is_in_folder=is_in_folder)
        return self._app

    def _enter(self, *, is_in_folder: bool) -> HTMLResponse:
        """Move the token from the address to a cookie for the folder, which a proxy may have put under others."""
        response = HTMLResponse(_ENTER.format("./" if is_in_folder else f".{self._folder}"))
        response.set_cookie(
            self._cookie,
            self._token.decode(),
            path=None if is_in_folder else self._folder,
            httponly=True,
            samesite="strict",
        )
        return response

    def _is_token(self, candidate: str) -> bool:
        return hmac.compare_digest(candidate.encode("utf-8", "surrogateescape"), self._token)

    def _has_cookie(self, headers: Headers) -> bool:
        # Programs at other ports may set cookies of the same name: each is tried.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        return any(name == self._cookie and self._is_token(value) for name, _, value in pairs)

    def _has_bearer(self, headers: Headers) -> bool:
        scheme, _, candidate = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(candidate.strip())

    def _is_ours(self, candidate: str) -> bool:
        """Return False for a name that somebody else's DNS may have pointed at this server."""
        if self._names is None:
            return True
        name = _without_port(candidate).lower()
        # Behind a wildcard address each address is ours: DNS can rebind names only.
        return name in self._names or (self._any_address and _is_address(name))


def _names_of(host: str) -> frozenset[str]:
    local = {"127.0.0.1", "::1", "localhost"}
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    if host in local:
        return frozenset(local)
    return frozenset({*local, *names, host.lower()})


def _without_port(candidate: str) -> str:
    if candidate.startswith("["):
        return candidate[1:].partition("]")[0]
    return candidate.rpartition(":")[0] if ":" in candidate else candidate


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
