"""The loopback interface of a fresh network namespace, which is down."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def bring_up() -> None:
    """Bring it up.

    Raises:
        OSError: This process lacks NET_ADMIN over its network namespace.
    """
    # struct ifreq: a name of 16 bytes, then flags in a union of 24. See netdevice(7).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", 0)
        (flags,) = struct.unpack("16xH22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))
