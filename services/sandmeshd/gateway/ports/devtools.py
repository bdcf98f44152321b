"""The DevTools protocol of a sandbox's browser, for libraries such as Playwright and Puppeteer.

Its pages of JSON (https://chromedevtools.github.io/devtools-protocol/#endpoints) name WebSockets as the browser sees
them; clients get them as they reach them. What the browser sends is untrusted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from sandmeshd.gateway.ports import pages
from sandmeshd.gateway.ports.headers import PortOrigin
from sandmeshd.runtime.http.headers import end_to_end
from sandmeshd.runtime.http.websockets import carry_websocket

_LARGEST: Final = 4 << 20
_VERSION: Final = "/json/version"


async def carry_devtools(
    session: aiohttp.ClientSession, request: web.Request, place: PortOrigin, url: URL
) -> web.StreamResponse:
    """Carry a request to the browser at `url`. A WebSocket at the root is the browser's own."""
    headers = end_to_end(request.headers)
    headers["Host"] = "localhost"
    # The browser refuses WebSockets of web pages by it. Here the URL's token is what admits.
    headers.popall("Origin", None)
    if request.headers.get("Upgrade", "").lower() == "websocket":
        if url.path == "/":
            url = url.with_path(await _browser_path(session, url))
        return await carry_websocket(session, request, headers, url)
    if not url.path.startswith("/json"):
        return pages.page(404, "The browser's DevTools protocol", "Connect to this URL with Playwright or Puppeteer.")
    async with session.request(request.method, url, headers=headers, allow_redirects=False) as answer:
        check_final(answer)
        body = await _read(answer)
        if answer.status != web.HTTPOk.status_code:
            return web.Response(status=answer.status, body=body)
        try:
            return web.json_response(_moved(_parse(body), _websocket_base(request, place)))
        except RecursionError:
            raise aiohttp.ClientPayloadError("the browser's answer is nested too deep") from None


def check_final(answer: aiohttp.ClientResponse) -> None:
    """Check that an answer to a request that asked for no other protocol has none.

    Raises:
        ClientPayloadError: It has: what follows is not HTTP, and the client would read it as answers.
    """
    if answer.status < web.HTTPOk.status_code:
        raise aiohttp.ClientPayloadError(f"it answered {answer.status}, which was not asked for")


async def _browser_path(session: aiohttp.ClientSession, url: URL) -> str:
    headers = CIMultiDict(Host="localhost")
    async with session.get(url.with_path(_VERSION), headers=headers, allow_redirects=False) as answer:
        version: object = _parse(await _read(answer))
    address = cast("dict[str, object]", version).get("webSocketDebuggerUrl") if isinstance(version, dict) else None
    path = _path(str(address))
    if not path.startswith("/devtools/"):
        raise aiohttp.ClientPayloadError("the browser names no WebSocket")
    return path


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = await answer.content.read(_LARGEST)
    while chunk := await answer.content.read(_LARGEST):
        body += chunk
        if len(body) > _LARGEST:
            raise aiohttp.ClientPayloadError("the browser's answer is too large")
    return body


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _websocket_base(request: web.Request, place: PortOrigin) -> str:
    """Return the address below which the client reaches WebSockets, also behind a proxy that speaks TLS for us."""
    secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
    return f"{'wss' if secure else 'ws'}://{request.host}{place.prefix}"


def _moved(value: Any, base: str) -> Any:
    """Return an answer in which WebSockets are below `base`."""
    if isinstance(value, list):
        return [_moved(each, base) for each in cast("Sequence[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    address = found.get("webSocketDebuggerUrl")
    if isinstance(address, str):
        found["webSocketDebuggerUrl"] = f"{base}{_path(address)}"
    # It leads to a page of another site, with the address as the browser sees it.
    found.pop("devtoolsFrontendUrl", None)
    return found


def _path(address: str) -> str:
    """Return the path of a URL that the browser names, empty where it is none."""
    try:
        return urlsplit(address).path
    except ValueError:
        return ""
