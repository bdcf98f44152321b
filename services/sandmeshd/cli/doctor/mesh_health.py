"""Looks at drivers, at the local mesh, and at what dead meshes left."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from sandmesh._client.connection import Connection, acquire, release
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import Denied, SandmeshError
from sandmeshd.cli.doctor.findings import Finding, Health, bad, good, unknown, warning
from sandmeshd.cli.sandboxes.fleet import list_all
from sandmeshd.cli.sandboxes.sweep import ask_for_sweep
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.drivers.api.registry import known_drivers
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import open_driver
from sandmeshd.mesh.sweep import PREFIX, remove
from sandmeshd.runtime.locks import holder

DRIVERS, MESH = "driver", "mesh"
ASK_SECONDS = 5.0


async def look_at_drivers(settings: MeshSettings) -> AsyncIterator[Finding]:
    """Open every driver that is installed, by itself, and say what the chosen one has built."""
    for name in known_drivers():
        # A mesh of a made-up name: what runs here must not notice.
        named = {"driver": name, "mesh_id": f"doctor-{secrets.token_hex(4)}", "ephemeral": True}
        async for finding in _try(settings.model_copy(update=named), chosen=name == settings.driver):
            yield finding


async def _try(scratch: MeshSettings, *, chosen: bool) -> AsyncIterator[Finding]:
    health = Health.BAD if chosen else Health.UNKNOWN
    try:
        scratch.paths.make()
        async with open_driver(scratch) as driver:
            info = await driver.get_info(driver_pb2.GetInfoRequest())
    except SandmeshError as error:
        fix = error.facts.get("fix", "")
        yield Finding(DRIVERS, scratch.driver, health, error.message.removesuffix(f": {fix}"), fix)
        return
    except OSError as error:
        fix = "make SANDMESH_STATE_DIRECTORY and SANDMESH_RUNTIME_DIRECTORY writable"
        yield Finding(DRIVERS, scratch.driver, health, str(error), fix)
        return
    finally:
        remove(scratch.paths)
    limits = ", ".join(f"{name} ({how})" for name, how in sorted(info.capabilities.limits.items())) or "none"
    seen = f"works: {info.runtime_version}; limits that hold: {limits}"
    if not chosen:
        yield good(DRIVERS, scratch.driver, f"{seen}; SANDMESH_DRIVER={scratch.driver} chooses it")
        return
    yield good(DRIVERS, scratch.driver, seen)
    for template in info.templates:
        yield _template(template)


def _template(template: driver_pb2.TemplateInfo) -> Finding:
    name = f"template {template.name}"
    if template.prepared:
        return good(DRIVERS, name, "built")
    return warning(DRIVERS, name, "not built yet", f"sandmesh build {template.name} (else the first start does it)")


async def look_at_mesh(settings: MeshSettings, where: Where) -> AsyncIterator[Finding]:
    """Ask the mesh that is meant what it holds, and look for what dead ones left."""
    address = find_address(where.base_url)
    if address is None:
        yield unknown(MESH, "local mesh", "not running; `sandmesh up -d` starts it")
    else:
        async for finding in _ask(address, where.token):
            yield finding
    yield _leftovers(settings)


async def _ask(address: str, token: str | None) -> AsyncIterator[Finding]:
    try:
        mesh = await acquire(address, token, ASK_SECONDS)
        try:
            yield good(MESH, "gateway", f"answers at {address}")
            blocked = False
            async for finding in _troubles(mesh):
                blocked = blocked or finding.health is Health.BAD
                yield finding
            async for finding in _contents(mesh) if not blocked else _nothing():
                yield finding
        finally:
            await release(mesh)
    except SandmeshError as error:
        yield bad(MESH, "gateway", error.message, error.facts.get("fix", "see the mesh's log, or `sandmesh down`"))


async def _nothing() -> AsyncIterator[Finding]:
    yield unknown(MESH, "contents", "not asked for while the mesh cannot answer")


async def _troubles(mesh: Connection) -> AsyncIterator[Finding]:
    try:
        seen = await mesh.ask(lambda stubs: stubs.sandboxes.GetMeshHealth, pb.GetMeshHealthRequest(), ASK_SECONDS)
    except Denied:
        yield unknown(MESH, "health", "only an administrator may see it")
        return
    for part in ("store", "clock", "records", "node"):
        found = [one for one in seen.troubles if one.part == part]
        for one in found:
            make = bad if one.blocks else warning
            yield make(MESH, f"node {one.node_id}" if part == "node" else part, one.detail, one.fix)
        if not found and part == "store":
            yield good(MESH, part, "answers")
    rotation = [f"{node.node_id} ({node.driver})" for node in seen.nodes if node.in_rotation]
    if rotation:
        yield good(MESH, "nodes", f"in rotation: {', '.join(rotation)}")
    else:
        yield bad(MESH, "nodes", "none takes sandboxes", "start a driver, or see above what each lacks")


async def _contents(mesh: Connection) -> AsyncIterator[Finding]:
    capacity = await mesh.ask(lambda stubs: stubs.sandboxes.GetCapacity, pb.GetCapacityRequest(), ASK_SECONDS)
    seen = f"{capacity.used} of {capacity.limit} sandboxes"
    fix = "end some (sandmesh kill), or start the mesh with more (--max-sandboxes)"
    yield warning(MESH, "capacity", seen, fix) if capacity.used >= capacity.limit else good(MESH, "capacity", seen)
    pools = ", ".join(f"{name}={count}" for name, count in sorted(capacity.pooled.items()))
    yield good(MESH, "pools", f"ready: {pools}" if pools else "none")
    found = await list_all(mesh, pb.ListSandboxesRequest(page_size=1000))
    yield await _agreement(mesh)
    wrong = [one for one in found if one.state in (pb.SANDBOX_STATE_FAILED, pb.SANDBOX_STATE_LOST)]
    if wrong:
        reasons = "; ".join(f"{one.sandbox_id}: {one.state_reason}" for one in wrong[:3])
        yield warning(MESH, "sandboxes", f"{len(wrong)} failed or lost: {reasons}", "sandmesh logs SANDBOX says more")


async def _agreement(mesh: Connection) -> Finding:
    name = "records"
    try:
        swept = await ask_for_sweep(mesh, dry_run=True)
    except Denied:
        return unknown(MESH, name, "only an administrator may compare them with the runtimes")
    if swept.recovering:
        return warning(MESH, name, "the store came back empty: records are being rebuilt", "wait a moment")
    found = [one for one in swept.findings if one.kind != "stopping"]
    if not found:
        return good(MESH, name, "records and runtimes agree")
    first = "; ".join(f"{one.sandbox_id or one.node_id}: {one.kind}, {one.reason}" for one in found[:3])
    return warning(MESH, name, f"{len(found)} differ: {first}", "sandmesh sweep --dry-run says more")


def _leftovers(settings: MeshSettings) -> Finding:
    folder = settings.state_directory / "meshes"
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    dead: list[str] = []
    for name in names:
        paths = settings.model_copy(update={"mesh_id": name}).paths
        has_sandboxes = paths.sandboxes.is_dir() and any(paths.sandboxes.iterdir())
        if paths.lock.exists() and holder(paths.lock) is None and has_sandboxes:
            dead.append(name)
    if not dead:
        return good(MESH, "leftovers", "none of dead meshes")
    one = next((name for name in dead if not name.startswith(PREFIX)), None)
    fix = "the next start of any mesh removes it" if one is None else f"SANDMESH_MESH_ID={one} sandmesh down"
    more = f" and {len(dead) - 3} more" if len(dead) > 3 else ""
    return warning(MESH, "leftovers", f"sandboxes of meshes that do not run: {', '.join(dead[:3])}{more}", fix)
