"""Keeps user code off the network that its container has, where the agent is reached by one: by a routing rule.

What a socket of user code's uid sends goes to the container's own addresses, which the kernel looks for first, or
nowhere; its answers to what comes from outside too. The sockets of the agent's links count as that uid's, as the files
do that it makes, so what they send is let out by their port, which no other socket can have. The rules are made with
NET_ADMIN, which the agent gives up right after.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

# linux/rtnetlink.h and linux/fib_rules.h
_NEW_RULE, _ERROR = 32, 2
_FLAGS: Final = 0x1 | 0x4 | 0x200 | 0x400
"""A request that is acknowledged, makes something, and fails where that is there."""

_LOOK_UP, _UNREACHABLE = 1, 7
_PRIORITY, _UIDS, _PROTOCOL, _FROM_PORTS = 6, 20, 22, 23
_MAIN: Final = 254
_HEADER, _RULE, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=8BI"), struct.Struct("=HH")


def block_outbound(user: int | None, port: int) -> None:
    """Block packets of a uid's sockets from leaving this network namespace, except those of TCP from a port, over IPv4.

    Without a uid it blocks those of all: where user code is root, it can take any.

    Raises:
        OSError: The kernel has no such rules, or NET_ADMIN is not there.
    """
    link = {_PROTOCOL: struct.pack("=B", socket.IPPROTO_TCP), _FROM_PORTS: struct.pack("=HH", port, port)}
    whole = {} if user is None else {_UIDS: struct.pack("=II", user, user)}
    # Right after the rule of local addresses, which is 0.
    _add_rule(socket.AF_INET, 1, _LOOK_UP, link)
    _add_rule(socket.AF_INET, 2, _UNREACHABLE, whole)
    try:
        _add_rule(socket.AF_INET6, 2, _UNREACHABLE, whole)
    except OSError as error:
        # A kernel without IPv6 has no way out by it.
        if error.errno not in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
            raise


def _add_rule(family: int, priority: int, action: int, attributes: dict[int, bytes]) -> None:
    rule = _RULE.pack(family, 0, 0, 0, _MAIN if action == _LOOK_UP else 0, 0, 0, action, 0)
    for name, value in {_PRIORITY: struct.pack("=I", priority), **attributes}.items():
        rule += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), name) + value + bytes(-len(value) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.send(_HEADER.pack(_HEADER.size + len(rule), _NEW_RULE, _FLAGS, 1, 0) + rule)
        answer = link.recv(1 << 12)
    kind, number = _HEADER.unpack_from(answer)[1], struct.unpack_from("=i", answer, _HEADER.size)[0]
    if kind != _ERROR or number:
        raise OSError(-number, f"a routing rule could not be made: {os.strerror(-number)}")
