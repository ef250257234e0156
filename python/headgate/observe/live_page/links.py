"""Links to the page: directly, or through the proxy of a notebook server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Variable with a template of the link for other proxies, such as ``/proxy/{port}/`` or ``/user/{JUPYTERHUB_USER}/proxy/{port}/``.
TEMPLATE: Final = "HEADGATE_UI_LINK"
#: Set by JupyterHub for each user's server: the path below which it is reached, such as ``/user/ann/``.
_HUB: Final = "JUPYTERHUB_SERVICE_PREFIX"


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link without its token.

    Attributes:
        url: an address; behind a proxy only its path, which a browser completes where it shows the notebook.
        behind_proxy: True if it leads through a proxy.
    """

    url: str
    behind_proxy: bool

    def with_token(self, token: str, folder: str) -> str:
        """Return the link with its token, to a folder of this page unless a template puts the path elsewhere."""
        if "?" in self.url:
            return f"{self.url}&token={quote(token)}"
        return f"{self.url.rstrip('/')}/{folder}/?token={quote(token)}"


def link_to(host: str, port: int, environ: Mapping[str, str] | None = None) -> PageLink:
    """Return the link by which a browser reaches the page.

    Args:
        host: the address that the server is bound to.
        port: its port.
        environ: the process's environment if not given.

    Raises:
        KeyError: the template names a variable that is not set.
    """
    environ = os.environ if environ is None else environ
    if template := environ.get(TEMPLATE):
        return PageLink(template.format_map({**environ, "host": host, "port": str(port)}), True)
    if prefix := environ.get(_HUB):
        # jupyter-server-proxy's path for a port of the notebook server's host.
        return PageLink(f"{prefix.rstrip('/')}/proxy/{port}/", True)
    return PageLink(direct(host, port), False)


def direct(host: str, port: int) -> str:
    """Return the address of the page on its own host."""
    shown = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host)  # noqa: S104 - not bound to
    return f"http://{shown or (f'[{host}]' if ':' in host else host)}:{port}/"
