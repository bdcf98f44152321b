"""The choice of how the agents on an engine are reached, if the settings leave it open."""

from __future__ import annotations

import asyncio
import secrets
import socket

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.auth.service_identity import kept_secret
from sandmeshd.drivers.engine.connection import sees_files, unseen
from sandmeshd.drivers.engine.container_config import node_labels
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.reach.links import AgentAccess, LinkMode, refuse_files
from sandmeshd.drivers.engine.settings import DockerSettings

OWNER_FILE = "driver-id"
PROBE = "sandmesh-probe-"


async def choose_link(engine: Engine, settings: DockerSettings) -> AgentAccess:
    """Return the link to the agents that the settings require, or else the first that works.

    Raises:
        RuntimeUnavailable: None works: the engine sees other files, and no address to publish ports on is set.
        InvalidArgument: A setting that it requires is missing, or one has no effect with it.
    """
    mode = await _mode(engine, settings)
    if mode == "socket":
        return AgentAccess()
    if settings.profile.runtime:
        # It has no routing rules, and its sandboxes have no network of the engine's.
        fix = "unset SANDMESH_DOCKER_AGENT_LINK, and run the driver where the engine sees its files"
        message = f"the {settings.profile.name} driver reaches agents only by sockets: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})
    first, last = settings.agent_ports
    # Shared by all drivers with this state: an engine may serve many machines.
    owner = await asyncio.to_thread(kept_secret, settings.paths.state_root / OWNER_FILE)
    link = AgentAccess(mode, owner, settings.publish_address, first, last)
    refuse_files(link, settings.readonly_mounts)
    return link


async def _mode(engine: Engine, settings: DockerSettings) -> LinkMode:
    choice = settings.agent_link
    if choice == "port" and not settings.publish_address:
        fix = "set SANDMESH_DOCKER_PUBLISH_ADDRESS to an address of the engine's machine that only this mesh reaches"
        raise InvalidArgument(f"agents at ports need an address to publish them on: {fix}", {"fix": fix})
    match choice:
        case "network" | "port":
            return choice
        case _:
            return await _detect(engine, settings)


async def _detect(engine: Engine, settings: DockerSettings) -> LinkMode:
    if await sees_files(engine, settings):
        return "socket"
    if settings.profile.runtime:
        raise unseen(settings, "")
    if settings.agent_link == "auto" and await _is_here(engine, settings):
        return "network"
    if settings.agent_link == "auto" and settings.publish_address:
        return "port"
    raise unseen(settings, "or set SANDMESH_DOCKER_PUBLISH_ADDRESS to have agents at ports there")


async def _is_here(engine: Engine, settings: DockerSettings) -> bool:
    """Return whether an engine's networks are this machine's: an interface appears here for a new one."""
    labels = dict(label.split("=", 1) for label in node_labels(settings))
    # Probes that a killed driver left.
    for stale in await engine.unused_networks(*node_labels(settings)):
        if stale.startswith(PROBE):
            await engine.remove_network(stale)
    name = f"{PROBE}{secrets.token_hex(8)}"
    network = await engine.make_network({"Name": name, "Internal": True, "Labels": labels})
    try:
        return f"br-{network[:12]}" in [interface for _, interface in socket.if_nameindex()]
    finally:
        await engine.remove_network(network)
