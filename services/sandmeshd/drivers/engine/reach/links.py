"""The modes in which drivers reach the agents of containers."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from sandmesh.errors import InvalidArgument

LinkChoice = Literal["auto", "socket", "network", "port"]
LinkMode = Literal["socket", "network", "port"]

AGENT_PORT = 8571
"""The port inside a container of an agent that is reached over a network."""

PORTS = (20000, 20999)
"""The ports that agents are published on by default: below those that Linux assigns to clients."""


@dataclass(frozen=True)
class AgentAccess:
    """How the agents of one driver's sandboxes are reached."""

    mode: LinkMode = "socket"
    """socket: in a shared directory; network: at the container's address; port: at a port that the engine publishes."""

    owner: str = ""
    """Distinguishes the containers of this driver's state from those of other machines on the same engine."""

    address: str = ""
    """The address that ports are published on."""

    first: int = 0
    last: int = 0
    """The range of these ports."""

    @property
    def remote(self) -> bool:
        """Whether the engine sees no files of this machine."""
        return self.mode != "socket"

    def __str__(self) -> str:
        """Describe it for a person."""
        if self.mode == "port":
            return f"at ports {self.first} to {self.last} of {self.address}"
        return "on separate networks" if self.mode == "network" else "by sockets"


def check_address(value: str) -> str:
    """Return the normalized address that ports are published on; empty stands for none.

    Raises:
        ValueError: It is not an address, or means all of a machine's.
    """
    if not value:
        return ""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address: set one of the engine's machine") from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(
            f"{value} is not a single address: agents are never published on all; set one that only you reach"
        )
    return str(address)


def check_ports(value: tuple[int, int]) -> tuple[int, int]:
    """Return a valid range of unprivileged ports.

    Raises:
        ValueError: It is not one.
    """
    if not 1024 <= value[0] <= value[1] <= 65535:
        raise ValueError(f"[{value[0]}, {value[1]}] is not a range of ports: set first and last, from 1024 to 65535")
    return value


def refuse_files(link: AgentAccess, readonly_mounts: object) -> None:
    """Refuse settings that need an engine which sees this machine's files.

    Raises:
        InvalidArgument: There is one.
    """
    if link.remote and readonly_mounts:
        fix = "unset SANDMESH_READONLY_MOUNTS, or run the driver on the engine's machine"
        message = f"the engine does not see this machine's files, which SANDMESH_READONLY_MOUNTS mounts: {fix}"
        raise InvalidArgument(message, {"setting": "readonly_mounts", "fix": fix})
