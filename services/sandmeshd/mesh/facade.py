"""Runs one facade apart from the mesh that it is a client of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from sandmeshd.auth.doors import door_proof
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.registry import find_door, find_doors, switch
from sandmeshd.gateway import check_settings
from sandmeshd.mesh.doors import open_doors
from sandmeshd.mesh.settings import MeshSettings, mesh_secret
from sandmeshd.runtime.http import Certificate, HttpAddresses, open_listener


@dataclass(frozen=True)
class ServingDoor:
    """A facade that serves."""

    e2b: Mapping[str, str]
    """The variables that E2B's clients need, empty for another facade."""

    urls: Mapping[str, str]
    """The facade's URL by its name, empty for E2B's."""


@asynccontextmanager
async def open_facade(settings: MeshSettings, name: str, mesh: MeshAddress) -> AsyncGenerator[ServingDoor]:
    """Serve one facade of a mesh on a separate HTTP listener until the block ends.

    Raises:
        Denied: The facade's own token is not an administrator's, as E2B's needs it.
        InvalidArgument: An address is open to others without what protects it, or settings contradict each other.
        MeshUnavailable: An address cannot be listened at, or the mesh does not answer.
    """
    plugin = find_door(name)
    switches: dict[str, object] = {switch(other).setting: one == name for one, other in find_doors().items()}
    own = settings.replaced(**switches)
    gateway = own.gateway.model_copy(update={"listen": ()})
    check_settings(gateway)
    cert, key = gateway.tls_cert, gateway.tls_key
    # A token is asked about at the mesh; the secret that is kept here may be another mesh's.
    proof = mesh.token if mesh.token and own.mesh_secret is None else door_proof(mesh_secret(own))
    known = replace(mesh, proof=proof)
    certificate = Certificate(cert, key) if cert is not None and key is not None else None
    addresses = HttpAddresses(gateway.http_listen, ports=gateway.http_ports)
    async with open_listener(addresses, certificate) as listener, AsyncExitStack() as stack:
        if plugin.open_apart is not None:
            listener.add(await stack.enter_async_context(plugin.open_apart(mesh)))
        doors = await stack.enter_async_context(open_doors(own, known, listener))
        yield ServingDoor(doors.variables.get(name, {}), doors.urls)
