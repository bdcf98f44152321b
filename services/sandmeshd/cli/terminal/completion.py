"""What a shell completes: ids of sandboxes and names of templates."""

from __future__ import annotations

import asyncio

from sandmesh._client.connection import acquire, release
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.templates import load_templates

SECONDS = 1.0


def complete_sandboxes(incomplete: str) -> list[tuple[str, str]]:
    """Give the ids of the mesh's sandboxes that begin so, each with its template; none where no mesh answers."""
    try:
        found = asyncio.run(_sandboxes())
    except (SandmeshError, OSError):
        return []
    return [(one.sandbox_id, one.spec.template) for one in found if one.sandbox_id.startswith(incomplete)]


def complete_templates(incomplete: str) -> list[str]:
    """Give the names of templates that begin so."""
    return [name for name in sorted(load_templates()) if name.startswith(incomplete)]


async def _sandboxes() -> list[pb.Sandbox]:
    address = find_address(None)
    if address is None:
        return []
    mesh = await acquire(address, None, SECONDS)
    try:
        request = pb.ListSandboxesRequest(page_size=200)
        return list((await mesh.ask(lambda stubs: stubs.sandboxes.ListSandboxes, request, SECONDS)).sandboxes)
    finally:
        await release(mesh)
