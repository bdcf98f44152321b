"""What stands before every request of the console: the session's cookie, the page that it comes from, its headers.

Exposed ports of sandboxes may be at another port of this host. To a browser they are of the same site, so that the
cookie is not enough: each request must come from the console's own origin.
"""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from sandmesh.errors import MethodNotFound, SandmeshError, Unauthenticated
from sandmeshd.contracts.console import COOKIE
from sandmeshd.facades.answers import RequestError, response_of
from sandmeshd.facades.console.older import OLDER
from sandmeshd.facades.console.sessions import ConsoleSessions, Session

HEADERS: Final = {
    "Cache-Control": "no-store",
    # The terminal sets its colours by a style element; scripts are only those of the console.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE: Final = frozenset({"GET", "HEAD"})
_ENDED: Final = "this session has ended: open the console by a new link of `sandmesh console`"
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sandmesh</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body {{ max-width: 44rem; margin: 12vh auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }}</style>
</head><body><h1>The console is not here</h1><p>{}.</p></body></html>"""
_ONLY_SHOWS: Final = "this session only shows: it uses and changes nothing"

Handler = Callable[[web.Request, Session], Awaitable[web.StreamResponse]]
Route = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """Lets requests pass that are of a session, and come from the console's pages."""

    def __init__(self, sessions: ConsoleSessions, hosts: Collection[str]) -> None:
        self._sessions = sessions
        self._hosts = hosts

    def page(self, handler: Route) -> Route:
        """Return a handler for what needs no session and is shown as it is: failures are pages, too."""
        return self.open(handler, failure_page)

    def open(self, handler: Route, fail: Callable[[Exception], web.Response] | None = None) -> Route:
        """Return a handler for what needs no session."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                self._check_host(request)
                response = await handler(request)
            except (RequestError, SandmeshError) as error:
                response = (fail or failure)(error)
            if not response.prepared:
                response.headers.update(HEADERS)
            return response

        return answer

    def session(self, handler: Handler) -> Route:
        """Return a handler for requests of a session."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self.check_origin(request)
            session = await self._sessions.find(request.cookies.get(COOKIE, ""))
            if session is None:
                raise RequestError(401, _ENDED)
            try:
                return await handler(request, session)
            except ConnectionError:
                raise
            except OSError as error:
                return failure(error)

        return self.open(answer)

    def user(self, handler: Handler) -> Route:
        """Return a handler for requests of a session that use or change something."""

        async def answer(request: web.Request, session: Session) -> web.StreamResponse:
            if session.read_only:
                raise RequestError(403, _ONLY_SHOWS)
            return await handler(request, session)

        return self.session(answer)

    def check_origin(self, request: web.Request) -> None:
        """Refuse a request that no page of the console sent.

        Raises:
            RequestError: It came from another page, or it changes something and does not say from where it came.
        """
        origin = request.headers.get("Origin")
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        asks_more = request.method not in _SAFE or "Upgrade" in request.headers
        foreign = origin is not None and urlsplit(origin).netloc != request.host
        if foreign or site != "same-origin" or (asks_more and origin is None):
            raise RequestError(403, "only pages of the console may send this request")

    def _check_host(self, request: web.Request) -> None:
        if request.host not in self._hosts:
            raise RequestError(421, "this name is not the console's: open it by the link of `sandmesh console`")


def failure_page(error: Exception) -> web.Response:
    """Return a failure as a page for a person.

    Raises:
        Exception: It is none that clients are told of.
    """
    answer = failure(error)
    why = error.message if isinstance(error, RequestError | SandmeshError) else str(error)
    return web.Response(text=_PAGE.format(html.escape(why)), status=answer.status, content_type="text/html")


def failure(error: Exception) -> web.Response:
    """Return a failure as a response; a token that the mesh refuses has ended the session.

    Raises:
        Exception: It is none that clients are told of.
    """
    if isinstance(error, Unauthenticated):
        return response_of(RequestError(401, _ENDED))
    if isinstance(error, MethodNotFound):
        return response_of(RequestError(501, OLDER))
    return response_of(error)
