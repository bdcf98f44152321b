"""What reaches a sandbox and what it reaches: its ports and views, its network and what it was refused."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from sandmesh.errors import CapabilityMissing
from sandmesh.mesh import PortInfo
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.console.records import milliseconds
from sandmeshd.facades.console.sessions import Session

_HOSTS: Final = 200
_LONGEST_NAME: Final = 300
_EXPOSED_SECONDS: Final = 24 * 3600.0


async def list_ports(request: web.Request, session: Session) -> web.Response:
    """Return the URLs that lead to a sandbox."""
    found = await session.mesh.ports.list(request.match_info["id"])
    return web.json_response({"ports": [_port_row(one) for one in found]})


async def expose(request: web.Request, session: Session) -> web.Response:
    """Create the URL of a port, or of a view: desktop, browser or mobile."""
    fields = await read_object(request)
    ports, sandbox_id, port, seconds = (
        session.mesh.ports,
        request.match_info["id"],
        fields.get("port"),
        fields.get("seconds"),
    )
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _EXPOSED_SECONDS:
        raise RequestError(400, f"seconds is a number above 0 and at most {_EXPOSED_SECONDS:g}")
    readonly = fields.get("readonly") is True
    match fields.get("kind"):
        case "desktop":
            made = await ports.show_desktop(sandbox_id, readonly=readonly, ttl=seconds)
        case "browser":
            made = await ports.show_browser(sandbox_id, readonly=readonly, ttl=seconds)
        case "mobile":
            made = await ports.show_mobile(sandbox_id, readonly=readonly, ttl=seconds)
        case _ if isinstance(port, int) and not isinstance(port, bool):
            made = await ports.expose(sandbox_id, port, ttl=seconds)
        case _:
            raise RequestError(400, "name a port, or as kind one of desktop, browser and mobile")
    return web.json_response(_port_row(made))


async def revoke(request: web.Request, session: Session) -> web.Response:
    """Revoke a URL."""
    await session.mesh.ports.revoke(request.match_info["id"], request.match_info["exposure"])
    return web.json_response({})


async def show_network(request: web.Request, session: Session) -> web.Response:
    """Return the grant of a sandbox and its traffic by host; null where its driver enforces none."""
    async with session.box(request.match_info["id"]) as box:
        try:
            state = await box.network.show()
        except CapabilityMissing as error:
            return web.json_response({"grant": None, "why": error.message, "hosts": []})
    hosts = sorted(state.hosts, key=lambda one: -(one.sent_bytes + one.received_bytes))[:_HOSTS]
    rows = [
        {
            "host": one.host,
            "connections": one.connections,
            "open": one.open_connections,
            "sent": one.sent_bytes,
            "received": one.received_bytes,
        }
        for one in hosts
    ]
    grant = {"mode": state.grant.mode, "hosts": list(state.grant.hosts)}
    return web.json_response({"grant": grant, "why": "", "hosts": rows})


async def change_network(request: web.Request, session: Session) -> web.Response:
    """Allow a host from now on, or deny it."""
    host = (await read_object(request)).get("host")
    if not isinstance(host, str) or not 0 < len(host) <= _LONGEST_NAME:
        raise RequestError(400, "host is the name of a host, as a grant names it, or an address")
    async with session.box(request.match_info["id"]) as box:
        change = box.network.allow if request.match_info["change"] == "allow" else box.network.deny
        grant = await change(host)
    return web.json_response({"mode": grant.mode, "hosts": list(grant.hosts)})


def _port_row(port: PortInfo) -> dict[str, Any]:
    return {
        "id": port.exposure_id,
        "kind": port.kind,
        "port": port.port,
        "url": port.url,
        "expires": milliseconds(port.expires.timestamp()),
        "connections": port.connections,
    }
