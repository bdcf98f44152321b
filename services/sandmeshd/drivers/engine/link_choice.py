"""Finds out in which way the agents on an engine are reached, where the settings leave that open."""

from __future__ import annotations

import asyncio
import secrets
import socket

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.auth.service_identity import kept_secret
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.links import Link, Way, refuse_files
from sandmeshd.drivers.engine.posture import of_node
from sandmeshd.drivers.engine.reach import sees_files, unseen
from sandmeshd.drivers.engine.settings import DockerSettings

OWNER_FILE = "driver-id"
PROBE = "sandmesh-probe-"


async def choose_link(engine: Engine, settings: DockerSettings) -> Link:
    """Give the way to the agents that the settings state, or else the first that there is.

    Raises:
        RuntimeUnavailable: There is none: the engine sees other files, and nothing says where ports may be published.
        InvalidArgument: A setting that it needs is not there, or one has no effect that way.
    """
    way = await _way(engine, settings)
    if way == "socket":
        return Link()
    if settings.kind.runtime:
        # It knows no routing rules, and its sandboxes are given no network of the engine's.
        fix = "unset SANDMESH_DOCKER_AGENT_LINK, and run the driver where the engine sees its files"
        message = f"the {settings.kind.name} driver reaches agents by sockets alone: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})
    first, last = settings.agent_ports
    # Of all drivers with this state: an engine may serve many machines.
    owner = await asyncio.to_thread(kept_secret, settings.paths.state_root / OWNER_FILE)
    link = Link(way, owner, settings.publish_address, first, last)
    refuse_files(link, settings.readonly_mounts)
    return link


async def _way(engine: Engine, settings: DockerSettings) -> Way:
    stated = settings.agent_link
    if stated == "port" and not settings.publish_address:
        fix = "set SANDMESH_DOCKER_PUBLISH_ADDRESS to an address of the engine's machine that only this mesh reaches"
        raise InvalidArgument(f"agents at ports need an address to publish them on: {fix}", {"fix": fix})
    match stated:
        case "network" | "port":
            return stated
        case _:
            return await _found(engine, settings)


async def _found(engine: Engine, settings: DockerSettings) -> Way:
    if await sees_files(engine, settings):
        return "socket"
    if settings.kind.runtime:
        raise unseen(settings, "")
    if settings.agent_link == "auto" and await _is_here(engine, settings):
        return "network"
    if settings.agent_link == "auto" and settings.publish_address:
        return "port"
    raise unseen(settings, "or set SANDMESH_DOCKER_PUBLISH_ADDRESS to have agents at ports there")


async def _is_here(engine: Engine, settings: DockerSettings) -> bool:
    """Say whether an engine's networks are this machine's: one that it makes is there, under a name nobody else has."""
    labels = dict(label.split("=", 1) for label in of_node(settings))
    # What a driver that was killed here has left.
    for left in await engine.unused_networks(*of_node(settings)):
        if left.startswith(PROBE):
            await engine.remove_network(left)
    name = f"{PROBE}{secrets.token_hex(8)}"
    made = await engine.make_network({"Name": name, "Internal": True, "Labels": labels})
    try:
        return f"br-{made[:12]}" in [interface for _, interface in socket.if_nameindex()]
    finally:
        await engine.remove_network(made)
