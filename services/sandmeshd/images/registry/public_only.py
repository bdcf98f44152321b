"""Which addresses a pull may connect to: where a registry leads, by redirects and token realms, is not to be trusted.

A registry with a public address leads only to public ones. One in a network of the machine's is trusted where an
administrator names it, as a mirror or in SANDMESH_IMAGE_REGISTRIES, and where users do not name images; what it leads
to is its operator's matter then. Addresses are checked when sockets are made for them: names cannot change in between.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from sandmesh.errors import PermissionDenied
from sandmeshd.contracts.public_addresses import kind_of
from sandmeshd.images.settings import ImageSettings

SocketFactory: TypeAlias = Callable[[Any], socket.socket]
_NOT_PUBLIC: Final = "which no public registry may lead to"


async def socket_factory(settings: ImageSettings, url: str, *, is_mirror: bool) -> SocketFactory | None:
    """Return what makes the sockets of a registry's session; None where any address will do.

    Raises:
        PermissionDenied: The registry is in a network of the machine's, and no administrator has named it.
    """
    host = urlsplit(url).hostname or ""
    inward = [address for address in await _addresses(host) if kind_of(address)]
    if not inward:
        proxy = settings.image_proxy.get_secret_value() if settings.image_proxy else ""
        return _public_only(set(await _addresses(urlsplit(proxy).hostname or "")))
    check_named(settings, host, inward[0], is_mirror=is_mirror)
    return None


def check_named(settings: ImageSettings, host: str, address: str, *, is_mirror: bool = False) -> None:
    """Check that a registry whose address is not public was named by an administrator, where that is required.

    Raises:
        PermissionDenied: It was not.
    """
    if settings.image_public_only and not is_mirror and not settings.image_registries:
        fix = f'have an administrator name it, as SANDMESH_IMAGE_REGISTRIES=["{host}/*"]'
        where = f"at {address}, which is {kind_of(address)}"
        message = f"the registry {host} is {where}, and users may not pull there: {fix}"
        raise PermissionDenied(message, {"fix": fix})


def refusal_in(error: BaseException) -> str:
    """Return what a failed connection says of a refused address; empty where none was refused."""
    text = str(getattr(error, "os_error", error))
    return text if _NOT_PUBLIC in text else ""


async def check_registry(settings: ImageSettings, url: str) -> None:
    """Check the addresses of a registry that another program pulls from: see `check_named`.

    Raises:
        PermissionDenied: It is in a network of the machine's, and no administrator has named it.
    """
    host = urlsplit(url).hostname or ""
    for address in await _addresses(host):
        if kind_of(address):
            check_named(settings, host, address)


def _public_only(allowed: set[str]) -> SocketFactory:
    def make(info: Any) -> socket.socket:
        family, kind, protocol, _, target = info
        if kind_of(str(target[0])) and target[0] not in allowed:
            raise OSError(errno.EACCES, f"{target[0]} is {kind_of(str(target[0]))}, {_NOT_PUBLIC}")
        return socket.socket(family, kind, protocol)

    return make


async def _addresses(host: str) -> list[str]:
    """Return the addresses of a host, none where it has none: to connect fails then, and says so."""
    if not host:
        return []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(target[0]).partition("%")[0] for *_, target in found]
