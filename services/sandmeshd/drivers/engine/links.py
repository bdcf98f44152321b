"""The three ways to the agents of containers: which there are, and which one an engine is for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from sandmesh.errors import InvalidArgument

LinkChoice = Literal["auto", "socket", "network", "port"]
Way = Literal["socket", "network", "port"]

AGENT_PORT = 8571
"""Where an agent listens in its container, where it is reached over a network."""

PORTS = (20000, 20999)
"""The ports that agents are published on by default: below those that Linux gives to clients."""


@dataclass(frozen=True)
class Link:
    """How the agents of one driver's sandboxes are reached."""

    way: Way = "socket"
    """socket: in a shared directory; network: at the container's address; port: at one that the engine publishes."""

    owner: str = ""
    """Tells the containers of this driver's state from those of other machines on the same engine."""

    address: str = ""
    """Where ports are published."""

    first: int = 0
    last: int = 0
    """The ports that may be."""

    @property
    def remote(self) -> bool:
        """Whether the engine sees no files of this machine."""
        return self.way != "socket"

    def __str__(self) -> str:
        """Say it for a person."""
        if self.way == "port":
            return f"at ports {self.first} to {self.last} of {self.address}"
        return "on networks of their own" if self.way == "network" else "by sockets"


def check_address(value: str) -> str:
    """Give an address that ports may be published on as it is written; empty is none.

    Raises:
        ValueError: It is no address, or stands for all of a machine's.
    """
    if not value:
        return ""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{value!r} is no IP address: give one of the engine's machine") from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"{value} is not one address: agents are never published on all; give one that only you reach")
    return str(address)


def check_ports(value: tuple[int, int]) -> tuple[int, int]:
    """Give a range of ports that anybody may be given.

    Raises:
        ValueError: It is none.
    """
    if not 1024 <= value[0] <= value[1] <= 65535:
        raise ValueError(f"[{value[0]}, {value[1]}] is no range of ports: give first and last, from 1024 to 65535")
    return value


def refuse_files(link: Link, readonly_mounts: object) -> None:
    """Refuse settings that need an engine which sees this machine's files.

    Raises:
        InvalidArgument: There is one.
    """
    if link.remote and readonly_mounts:
        fix = "unset SANDMESH_READONLY_MOUNTS, or run the driver on the engine's machine"
        message = f"the engine does not see this machine's files, and sandboxes are to be shown some: {fix}"
        raise InvalidArgument(message, {"setting": "readonly_mounts", "fix": fix})
