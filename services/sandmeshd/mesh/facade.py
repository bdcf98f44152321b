"""Runs one facade apart from the mesh that it is a client of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module

from sandmesh.errors import Denied, Unauthenticated
from sandmesh.mesh import MeshAsync
from sandmeshd.auth.doors import door_proof
from sandmeshd.facades.address import MeshAddress
from sandmeshd.gateway import check_settings
from sandmeshd.mesh.doors import open_e2b
from sandmeshd.mesh.settings import MeshSettings, mesh_secret
from sandmeshd.mesh.url_doors import door_urls, open_url_doors
from sandmeshd.runtime.http import Certificate, HttpAddresses, open_listener

NAMES = ("e2b", "agentscope", "swerex", "sandboxfusion")


@dataclass(frozen=True)
class Facade:
    """A facade that serves."""

    e2b: Mapping[str, str]
    """The variables that E2B's clients need, empty for another facade."""

    urls: Mapping[str, str]
    """The facade's URL by its name, empty for E2B's."""


@asynccontextmanager
async def open_facade(settings: MeshSettings, name: str, mesh: MeshAddress) -> AsyncGenerator[Facade]:
    """Serve one facade of a mesh on an HTTP listener of its own until the block ends.

    Raises:
        Denied: The facade's own token is not an administrator's, as E2B's needs it.
        InvalidArgument: An address is open to others without what protects it, or settings contradict each other.
        MeshUnavailable: An address cannot be listened at, or the mesh does not answer.
    """
    disabled: dict[str, object] = dict.fromkeys(NAMES, False)
    own = settings.replaced(**disabled | {name: True})
    gateway = own.gateway.model_copy(update={"listen": ()})
    check_settings(gateway)
    cert, key = gateway.tls_cert, gateway.tls_key
    # A token is asked about at the mesh; the secret that is kept here may be another mesh's.
    proof = mesh.token if mesh.token and own.mesh_secret is None else door_proof(mesh_secret(own))
    known = replace(mesh, proof=proof)
    certificate = Certificate(cert, key) if cert is not None and key is not None else None
    addresses = HttpAddresses(gateway.http_listen, ports=gateway.http_ports)
    async with open_listener(addresses, certificate) as listener, AsyncExitStack() as stack:
        if name == "e2b":
            await _check_token(mesh)
            own.paths.make()
            relay = await asyncio.to_thread(import_module, "sandmeshd.facades.e2b.relay")
            listener.add(await stack.enter_async_context(relay.open_relay()))
        await stack.enter_async_context(open_url_doors(own, known, listener))
        variables = await stack.enter_async_context(open_e2b(own, mesh_secret(own), known, listener))
        yield Facade(variables, await door_urls(own, listener))


async def _check_token(mesh: MeshAddress) -> None:
    async with MeshAsync(mesh.url, mesh.token) as client:
        try:
            await client.tokens.list()
        except (Denied, Unauthenticated) as error:
            fix = "set SANDMESH_TOKEN to one of `sandmesh token create NAME --scope admin`"
            raise Denied(f"the facade's own token is not an administrator's: {fix}", {"fix": fix}) from error
