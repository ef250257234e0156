"""The sources of the state for ``top``: the live page of a driver, or a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from headgate.errors import OptionError
from headgate.observe.state import state_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPMessage
    from typing import IO

    from headgate.observe.state import State

#: Variable with the link, for a ``top`` without an argument.
LINK: Final = "HEADGATE_UI"
#: Seconds for one answer of the page.
_TIMEOUT: Final = 5.0


class Unreachable(Exception):
    """The page does not answer, or not with a state."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the token would go along."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,  # noqa: ARG002 - see the base
    ) -> Never:
        """Refuse."""
        raise HTTPError(req.full_url, code, msg, headers, fp)


def states(place: str) -> Callable[[], State]:
    """Return a function that returns the state of now.

    Args:
        place: link of a live page with its token, or path of a JSON file.

    Raises:
        OptionError: it is neither.
    """
    scheme = urlsplit(place).scheme
    if scheme in {"http", "https"}:
        return _page(place)
    path = Path(place)
    if not path.is_file():
        raise OptionError(
            "top needs the link of a live page or a file with a state",
            asked=place or "no argument",
            have="no such file" if place else f"the variable {LINK} is not set",
            remedy="python -m headgate top 'LINK' with the link of headgate.spark.ui() · "
            'python -m headgate top run.json with a file of headgate.spark.report("run.json")',
        )
    state = state_in(path.read_bytes(), place)
    return lambda: state


def argument_or_environment(place: str | None) -> str:
    """Return the argument, or the link in the environment."""
    return place or os.environ.get(LINK, "")


def _page(link: str) -> Callable[[], State]:
    parts = urlsplit(link)
    token = parse_qs(parts.query).get("token", [""])[0]
    url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/state.json"
    # No proxy: the page listens on this host, or behind an ssh tunnel.
    opener = build_opener(ProxyHandler({}), _NoRedirect())
    request = Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - http or https

    def ask() -> State:
        try:
            with opener.open(request, timeout=_TIMEOUT) as answer:
                body = answer.read()
        except HTTPError as error:
            why = "it refuses the token" if error.code == 403 else f"status {error.code}"
            raise Unreachable(f"{parts.netloc}: {why}") from None
        except (URLError, OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise Unreachable(f"{parts.netloc}: {reason}") from None
        try:
            return state_in(body, parts.netloc)
        except OptionError as error:
            raise Unreachable(error.summary) from None

    return ask
