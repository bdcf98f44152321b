"""Checks of a mesh's settings that need this machine: before its first start builds anything.

What concerns a single setting is checked by its class.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from importlib.util import find_spec

from sandmesh.errors import AlreadyExists, InvalidArgument, MeshUnavailable, RuntimeUnavailable
from sandmeshd.facades.registry import find_doors
from sandmeshd.mesh.doors import door_settings
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.locks import holder
from sandmeshd.runtime.settings import variables_of


def check_not_running(settings: MeshSettings) -> None:
    """Refuse to start a mesh that runs already.

    Raises:
        AlreadyExists: It does; the message says where, and that the options of this start have no effect.
    """
    paths = settings.paths
    pid = holder(paths.lock)
    if pid is None:
        return
    tcp = [f"{host}:{port}" for host, port in sorted(Listeners(paths.listeners).all())]
    addresses = ", ".join([f"unix://{paths.gateway}", *tcp])
    fix = "use it as it is, end it with `sandmesh down` first, or choose another SANDMESH_MESH_ID"
    message = (
        f"the mesh {settings.mesh_id} runs already, as process {pid} at {addresses}; "
        f"the options and settings of this start were not applied: {fix}"
    )
    raise AlreadyExists(message, {"mesh_id": settings.mesh_id, "pid": str(pid), "fix": fix})


def check_templates(settings: MeshSettings, known: Collection[str]) -> None:
    """Check the templates that settings name, and that there is room for the pools.

    Raises:
        InvalidArgument: There is no such template, or the pools exceed the limit of sandboxes.
    """
    allocator = settings.allocator
    named = {
        "SANDMESH_POOLS (--pool)": allocator.pools,
        "SANDMESH_TEMPLATE_CAPACITIES": allocator.template_capacities,
        **_templates_of_doors(settings),
    }
    for setting, names in named.items():
        for name in names:
            if name not in known:
                raise InvalidArgument(f"{setting}: no such template: {name} (known: {', '.join(sorted(known))})")
    total = sum(allocator.pools.values())
    if total > allocator.capacity:
        fix = "make the pools smaller or the limit larger"
        limit = f"SANDMESH_MAX_SANDBOXES (--max-sandboxes) is {allocator.capacity}"
        message = f"SANDMESH_POOLS (--pool) keeps {total} sandboxes ready, but {limit}: {fix}"
        raise InvalidArgument(message, {"fix": fix})


def check_addresses_free(settings: MeshSettings) -> None:
    """Check that every TCP address can be listened at.

    Raises:
        InvalidArgument: A host is not one of this machine.
        MeshUnavailable: Another process listens there.
    """
    _check_free("SANDMESH_LISTEN (--listen)", settings.gateway.listen)
    _check_free("SANDMESH_HTTP_LISTEN", settings.gateway.http_listen)
    for name, plugin in find_doors().items():
        own = door_settings(settings, name, plugin)
        # A door listens at separate addresses for the names of its domain.
        if own.enabled and getattr(own, "domain", None) is not None:
            listens = [variable for variable in variables_of(plugin.settings).values() if variable.path == ("listen",)]
            for one in listens:
                _check_free(one.name, one.read(own))


def check_certificate_maker(settings: MeshSettings) -> None:
    """Check that a certificate can be made where a door serves names of a domain and none is configured.

    Raises:
        RuntimeUnavailable: The extra `tls` is not installed.
    """
    if settings.gateway.tls_cert is not None or find_spec("trustme") is not None:
        return
    for name, plugin in find_doors().items():
        own = door_settings(settings, name, plugin)
        domain = getattr(own, "domain", None)
        if own.enabled and domain is not None:
            fix = "pip install 'sandmesh[tls]', or set SANDMESH_TLS_CERT and SANDMESH_TLS_KEY"
            message = f"a certificate for *.{domain} is made by the extra tls, which is not installed: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix})


def _check_free(setting: str, addresses: Iterable[str]) -> None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            message = f"{setting}: the host of {address} is not known here: {error.strerror or error}"
            raise InvalidArgument(message, {"address": address}) from None
        family, kind, _, _, sockaddr = found[0]
        with socket.socket(family, kind) as probe:
            # As the listeners themselves do: connections that have just ended do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(sockaddr)
            except OSError as error:
                message = f"{setting}: cannot listen at {address}: {error.strerror}; free it or choose another address"
                raise MeshUnavailable(message, {"address": address}) from None


def _templates_of_doors(settings: MeshSettings) -> dict[str, list[str]]:
    """Return the template that each door's setting of that name has, by variable."""
    found: dict[str, list[str]] = {}
    for name, plugin in find_doors().items():
        own = door_settings(settings, name, plugin)
        named = [variable for variable in variables_of(plugin.settings).values() if variable.path == ("template",)]
        found |= {one.name: [one.read(own)] for one in named}
    return found
