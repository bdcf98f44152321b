"""Headers and cookies on their way: what is of one hop stays there, places are told as the other side sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from sandmeshd.contracts.console import COOKIE
from sandmeshd.runtime.http import PORT_HEADER
from sandmeshd.runtime.http.headers import end_to_end

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - what servers say of themselves
_OF_ORIGIN: Final = frozenset(
    {
        *("service-worker-allowed", "clear-site-data", "strict-transport-security", "alt-svc", "accept-ch"),
        *("nel", "report-to", "reporting-endpoints"),
    }
)
"""Headers with which a page speaks for its whole origin, which all ports share that are told apart by path."""


_NOT_IN_URLS: Final = dict.fromkeys(map(ord, "\t\n\r"))


@dataclass(frozen=True)
class PortOrigin:
    """Where a port is for clients: its origin (http://host:port) and the path before everything, empty or /p/TOKEN."""

    origin: str
    prefix: str
    port: int
    relayed: bool = False
    """A header named the port: any page of the gateway's origin could have sent it."""

    @property
    def host(self) -> str:
        """What the server inside is told that it is called: what servers for development let through."""
        return f"localhost:{self.port}"


def for_server(request: web.BaseRequest, place: PortOrigin) -> CIMultiDict[str]:
    """Return a request's headers as the server inside gets them."""
    headers = end_to_end(request.headers)
    headers.popall(PORT_HEADER, None)
    _drop_console(headers)
    headers["Host"] = place.host
    if headers.get("Origin") == place.origin:
        headers["Origin"] = f"http://{place.host}"
    before = headers.get("X-Forwarded-For")
    peer = request.remote or "unknown"
    headers["X-Forwarded-For"] = f"{before}, {peer}" if before else peer
    headers.setdefault("X-Forwarded-Proto", request.scheme)
    headers.setdefault("X-Forwarded-Host", request.host)
    if place.prefix:
        headers["X-Forwarded-Prefix"] = place.prefix
    return headers


def _drop_console(headers: CIMultiDict[str]) -> None:
    """Drop the console's session, which browsers send to all ports of its host."""
    for whole in headers.popall("Cookie", []):
        pairs = [pair for pair in whole.split(";") if pair.partition("=")[0].strip() != COOKIE]
        if any(pair.strip() for pair in pairs):
            headers.add("Cookie", ";".join(pairs).strip())


def for_client(headers: CIMultiDictProxy[str], place: PortOrigin) -> CIMultiDict[str]:
    """Return a response's headers as the client gets them: places, cookies and effects are below the port's own."""
    found = end_to_end(headers)
    if place.prefix or place.relayed:
        for name in _OF_ORIGIN & {name.lower() for name in found}:
            del found[name]
    for name in ("Location", "Content-Location"):
        if name in found:
            found[name] = _moved(found[name], place)
    cookies = found.popall("Set-Cookie", [])
    for cookie in cookies:
        found.add("Set-Cookie", _cookie(cookie, place))
    return found


def _moved(where: str, place: PortOrigin) -> str:
    try:
        parts = urlsplit(where)
        inside = parts.hostname in _LOCAL and parts.port == place.port
    except ValueError:
        return where  # no URL: what the client makes of it is its own affair
    if parts.netloc and not inside:
        return where
    # The parts are of a URL without its tabs and line feeds: https://url.spec.whatwg.org/#url-parsing.
    rest = where.translate(_NOT_IN_URLS).partition("//")[2].removeprefix(parts.netloc) if parts.netloc else where
    if not parts.netloc and not where.startswith("/"):
        return where
    return f"{place.origin if parts.netloc else ''}{place.prefix}{rest or '/'}"


def _cookie(cookie: str, place: PortOrigin) -> str:
    """Keep a cookie to its port: the domain is the client's affair, and a path is below the prefix.

    Attributes are read as browsers do, by https://www.rfc-editor.org/rfc/rfc6265#section-5.2: the last path counts, and
    one that does not begin with a slash is none.
    """
    pair, *attributes = cookie.split(";")
    named = [(text.partition("=")[0].strip().lower(), text) for text in attributes]
    kept = [(name, text.strip()) for name, text in named if name != "domain"]
    if place.prefix:
        paths = [text.partition("=")[2].strip() for name, text in kept if name == "path"]
        path = paths[-1] if paths and paths[-1].startswith("/") else "/"
        kept = [("path", f"Path={place.prefix}{path}"), *((name, text) for name, text in kept if name != "path")]
    return "; ".join([pair.strip(), *(text for _, text in kept)])
