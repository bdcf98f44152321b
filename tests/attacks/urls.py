"""URLs of ports, desktops, browsers and DevTools, by path and by name."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from tests.attacks.tally import Tally
from tests.attacks.target import DOMAIN, PAGE, Target

_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
_VIEWS = ("", "json/version", "devtools/browser/x", "websockify", "vnc.html", "view", "socket", "cdp", "adb")


async def forge_tokens(target: Target, tally: Tally) -> None:
    """Change each character of a token, spell it in another way, and ask for the sockets of views with it."""
    token = target.token
    forged = [token[:at] + ("b" if token[at] != "b" else "c") + token[at + 1 :] for at in range(len(token))]
    forged += [token[:-1], token + "a", token * 2, token[::-1], "a" * len(token), ""]
    for one in forged:
        status, text = await target.get(f"/p/{one}/", allow_redirects=False)
        tally.note(f"GET /p/{one}/", held=status < 500 and PAGE not in text)
    for one in forged[:10]:
        for view in _VIEWS:
            status, text = await target.get(f"/p/{one}/{view}", headers=_UPGRADE)
            tally.note(f"WebSocket /p/{one}/{view}", held=status in range(400, 500) and PAGE not in text)
    for spelt in (token.swapcase(), f"%{ord(token[0]):02x}{token[1:]}", f"./{token}", f"x/../{token}", f"{token}%00"):
        status, text = await _raw(target, f"/p/{spelt}/", urlsplit(target.url).netloc)
        tally.note(f"raw /p/{spelt}/", held=status < 500 and PAGE not in text)


async def forge_names(target: Target, tally: Tally) -> None:
    """Name a port by hosts that are nearly the one of a token, and by the headers that proxies set."""
    token = target.token
    changed = [f"{token[:at]}{'b' if token[at] != 'b' else 'c'}{token[at + 1 :]}.{DOMAIN}" for at in range(len(token))]
    near = [DOMAIN, f".{DOMAIN}", f"{token}.{DOMAIN}.evil", f"{token}.evil{DOMAIN}", f"x.{token}.{DOMAIN}", token]
    near += [f"{token}@{DOMAIN}", f"{token}.{DOMAIN}@evil", f"{token}%2e{DOMAIN}", f"{token}\t.{DOMAIN}", "[::1]", ""]
    for host in (*changed, *near):
        status, text = await _raw(target, "/", host)
        tally.note(f"Host: {host}", held=status < 500 and PAGE not in text)
    for name in ("X-Forwarded-Host", "Forwarded", "X-Original-Host", "X-Host", "X-Sandmesh-Port", "X-Port"):
        for value in (f"{token}.{DOMAIN}", f"host={token}.{DOMAIN}", "127.0.0.1"):
            status, text = await _raw(target, "/", "evil.test", f"{name}: {value}")
            tally.note(f"{name}: {value}", held=status < 500 and PAGE not in text)
    status, text = await _raw(target, "/", "evil.test", f"Host: {token}.{DOMAIN}")
    tally.note("two hosts", held=status == 400)


async def _raw(target: Target, path: str, host: str, *lines: str) -> tuple[int, str]:
    """Send a request as its bytes, and return what came: libraries would correct it. Status 0: the connection ended."""
    place = urlsplit(target.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        head = [f"GET {path} HTTP/1.1", f"Host: {host}", *lines, "Connection: close", "", ""]
        writer.write("\r\n".join(head).encode())
        async with asyncio.timeout(30):
            data = await reader.read(1 << 20)
    except ConnectionError:
        data = b""
    finally:
        writer.close()
    words = data.split(b" ", 2)
    return int(words[1]) if len(words) > 2 and words[1].isdigit() else 0, data.decode(errors="replace")
