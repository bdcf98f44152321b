"""The page that Prometheus reads."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from sandmeshd.runtime.http.listener import Pages
from sandmeshd.runtime.telemetry.metrics import CONTENT_TYPE, Observed

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/metrics"


def metrics_page(observed: Observed, *, to_all: bool = False) -> Pages:
    """Return the page `/metrics`: to processes of this machine that call it so, or `to_all` who reach the address."""

    def add(application: web.Application) -> None:
        from aiohttp import web  # noqa: PLC0415 - a mesh that opens no HTTP needs it not

        async def show(request: web.Request) -> web.Response:
            if not to_all and not (_is_local(request.remote) and _names_this_machine(request.url.host)):
                return web.Response(status=403, text="metrics are for this machine: see --metrics\n")
            return web.Response(body=await observed.text(), headers={"Content-Type": CONTENT_TYPE})

        application.router.add_get(PATH, show)

    return add


def _names_this_machine(host: str | None) -> bool:
    """Return whether a Host header is an address or a local name: pages of other names could read the answer."""
    return host is not None and (host.rstrip(".").lower() == "localhost" or _is_local(host))


def _is_local(remote: str | None) -> bool:
    try:
        return remote is not None and ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False
