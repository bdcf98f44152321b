"""What a person sees where no page comes from the sandbox."""

from __future__ import annotations

import errno
from html import escape

from aiohttp import web

from sandmesh.errors import LeaseLost, NotFound, SandboxLost, SandmeshError, Unauthenticated
from sandmeshd.gateway.ports.agent_call import AgentRefused
from sandmeshd.runtime.http import PAGE_HEADER

_PAGE = """<!doctype html><html lang=en><meta charset=utf-8><meta name=robots content=noindex>
<meta name=viewport content="width=device-width,initial-scale=1"><meta name=color-scheme content="light dark">
<title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 1.125rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 0 auto; padding: 12vh 1.25rem 2rem;
  overflow-wrap: anywhere; color: #1c1c1e; background: #fff }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0 0 .75rem }} p {{ margin: 0; color: #48484c }}
@media (prefers-color-scheme: dark) {{ body {{ color: #f2f2f4; background: #161618 }} p {{ color: #c4c4ca }} }}
</style><h1>{title}</h1><p>{text}</p>
"""


def page(status: int, title: str, text: str) -> web.Response:
    """Return a page with a title and what to do."""
    # What a server inside sent may be in it, with surrogates for bytes that are no text.
    body = _PAGE.format(title=escape(title), text=escape(text)).encode(errors="backslashreplace")
    headers = {"Cache-Control": "no-store", PAGE_HEADER: "1"}
    return web.Response(status=status, body=body, charset="utf-8", content_type="text/html", headers=headers)


def ended() -> web.Response:
    """Return the page of a URL that leads nowhere, whether it ever did or not."""
    return page(404, "Nothing is here", "This link has expired, was revoked or never was. Ask its owner for a new one.")


def busy(why: str, retry_after: int) -> web.Response:
    """Return the page that says that too much is open, and when to try again."""
    response = page(503, "Too many connections", f"{why[:1].upper()}{why[1:]}. Load this page again later.")
    response.headers["Retry-After"] = str(retry_after)
    return response


def unreachable(why: SandmeshError | AgentRefused, port: int, watched: str | None = None) -> web.Response:
    """Return the page that says why a port cannot be reached, or the desktop, browser or phone that is `watched`."""
    if isinstance(why, AgentRefused) and why.number == errno.ENOENT:
        return ended()
    if isinstance(why, NotFound | LeaseLost | Unauthenticated):
        return ended()
    if isinstance(why, SandboxLost):
        if watched is None:
            text = f"Its port {port} was shown here. Make a new sandbox and expose the port again."
        else:
            text = f"Its {watched} was shown here. Ask the sender of the link for one to a new sandbox."
        return page(404, "The sandbox has ended", text)
    if isinstance(why, AgentRefused) and watched is not None:
        return page(503, f"The {watched} does not answer", f"{why} Load this page again in a moment.")
    if isinstance(why, AgentRefused):
        text = (
            f"Nothing answers on port {port} of the sandbox ({why}). Start the server there, listening at 127.0.0.1 or "
            "0.0.0.0, and load this page again."
        )
        return page(502, f"Nothing listens on port {port}", text)
    return page(503, "The sandbox cannot be reached", f"{why.message} Try again in a moment.")
