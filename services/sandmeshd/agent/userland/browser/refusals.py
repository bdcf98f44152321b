"""Why the sandbox's proxy refuses a host: browsers do not show what a proxy says to CONNECT."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from sandmeshd.agent.userland.browser.chromium import proxy_url

_SECONDS: Final = 5.0
_LARGEST: Final = 4096


async def explain_refusal(url: str) -> str:
    """Return what the proxy says to a connection to the host of a URL; "" where it connects, or there is none."""
    proxy, parts = urlsplit(proxy_url()), urlsplit(url)
    if not proxy.hostname or not parts.hostname:
        return ""
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_SECONDS):
            return await _ask(proxy.hostname, proxy.port or 80, f"{parts.hostname}:{parts.port or 443}")
    return ""


async def _ask(host: str, port: int, target: str) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode("ascii", "ignore"))
        status = await reader.readline()
        if status.split()[1:2] == [b"200"]:
            return ""
        text = await reader.read(_LARGEST)
        return text.partition(b"\r\n\r\n")[2].decode("utf-8", "replace").strip()
    finally:
        writer.close()
