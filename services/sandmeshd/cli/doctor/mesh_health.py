"""Checks the drivers, the mesh, and what meshes that were killed left behind."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

from sandmesh.errors import Denied, SandmeshError
from sandmesh.mesh import MeshAsync, SandboxInfo
from sandmeshd.cli.doctor.findings import Finding, Health, bad, good, unknown, warning
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.drivers.api.registry import known_drivers
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import describe_driver
from sandmeshd.mesh.sweep import PREFIX, remove
from sandmeshd.runtime.locks import holder

DRIVERS, MESH = "driver", "mesh"
REQUEST_SECONDS = 5.0
_BROKEN_FIX = (
    "sandmesh logs SANDBOX says more; each record ends by itself: when its session requests a sandbox again, or with "
    "its lease, 10 minutes later at most"
)


async def check_drivers(settings: MeshSettings) -> AsyncIterator[Finding]:
    """Open each installed driver by itself, and check the templates of the chosen one."""
    for name in known_drivers():
        # A separate mesh, so that a mesh that runs here is not affected.
        overrides = {"driver": name, "mesh_id": f"doctor-{secrets.token_hex(4)}", "ephemeral": True}
        async for finding in _check_driver(settings.model_copy(update=overrides), chosen=name == settings.driver):
            yield finding


async def _check_driver(scratch: MeshSettings, *, chosen: bool) -> AsyncIterator[Finding]:
    health = Health.BAD if chosen else Health.UNKNOWN
    try:
        scratch.paths.make()
        info = await describe_driver(scratch)
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
    seen = f"works: {info.runtime_version}; limits that it enforces: {limits}"
    if not chosen:
        yield good(DRIVERS, scratch.driver, f"{seen}; SANDMESH_DRIVER={scratch.driver} chooses it")
        return
    yield good(DRIVERS, scratch.driver, seen)
    for template in info.templates:
        name = f"template {template.name}"
        if template.prepared:
            yield good(DRIVERS, name, "built")
        else:
            fix = f"sandmesh build {template.name} (otherwise the first start does it)"
            yield Finding(DRIVERS, name, Health.UNKNOWN, "not built yet", fix)


async def check_mesh(settings: MeshSettings, connection: ConnectionOptions) -> AsyncIterator[Finding]:
    """Check the mesh, and what meshes that were killed left behind."""
    address = connection.address
    if address is None:
        yield unknown(MESH, "local mesh", "not running; `sandmesh up -d` starts it")
    else:
        async for finding in _check_gateways(address, connection):
            yield finding
    yield _check_leftovers(settings)


async def _check_gateways(address: str, connection: ConnectionOptions) -> AsyncIterator[Finding]:
    """Check each of several gateways by itself, then the mesh by one that answers."""
    addresses = [part.strip() for part in address.split(",") if part.strip()]
    answering = addresses
    if len(addresses) > 1:
        failures = await asyncio.gather(*(_failure(replace(connection, base_url=one)) for one in addresses))
        for one, failure in zip(addresses, failures, strict=True):
            if failure:
                yield bad(MESH, f"gateway {one}", failure, "see its log; end it where it hangs, and start it again")
        answering = [one for one, failure in zip(addresses, failures, strict=True) if not failure] or addresses
    found = ",".join(answering)
    async for finding in _check_running(found, replace(connection, base_url=found).mesh(REQUEST_SECONDS)):
        yield finding


async def _failure(connection: ConnectionOptions) -> str:
    """Return why a gateway does not answer; "" where it does."""
    try:
        async with connection.mesh(REQUEST_SECONDS) as mesh:
            await mesh.health()
    except Denied:
        return ""
    except SandmeshError as error:
        return error.message
    return ""


async def _check_running(address: str, client: MeshAsync) -> AsyncIterator[Finding]:
    try:
        async with client as mesh:
            yield good(MESH, "gateway", f"answers at {address}")
            is_blocked = False
            async for finding in _check_health(mesh):
                is_blocked = is_blocked or finding.health is Health.BAD
                yield finding
            if is_blocked:
                yield unknown(MESH, "contents", "not checked while the mesh cannot answer")
                return
            async for finding in _check_contents(mesh):
                yield finding
    except SandmeshError as error:
        yield bad(MESH, "gateway", error.message, error.facts.get("fix", "see the mesh's log, or `sandmesh down`"))


async def _check_health(mesh: MeshAsync) -> AsyncIterator[Finding]:
    try:
        health = await mesh.health()
    except Denied:
        yield unknown(MESH, "health", "only an administrator may see it")
        return
    for part in ("store", "clock", "allocator", "records", "node", "template"):
        found = [trouble for trouble in health.troubles if trouble.part == part]
        for one in found:
            make = bad if one.blocks else warning
            name = f"{part} of {one.node_id}" if part == "template" else f"node {one.node_id}"
            yield make(MESH, name if one.node_id else part, one.detail, one.fix)
        if not found and part == "store":
            yield good(MESH, part, "answers")
    rotation = [f"{node.node_id} ({node.driver})" for node in health.nodes if node.in_rotation]
    if rotation:
        yield good(MESH, "nodes", f"in rotation: {', '.join(rotation)}")
    else:
        yield bad(MESH, "nodes", "none can run sandboxes", "start a driver, or see above what is wrong with each")


async def _check_contents(mesh: MeshAsync) -> AsyncIterator[Finding]:
    capacity = await mesh.capacity()
    seen = f"{capacity.used} of {capacity.limit} sandboxes"
    fix = "kill some (sandmesh kill), or start the mesh with more (--max-sandboxes)"
    yield warning(MESH, "capacity", seen, fix) if capacity.used >= capacity.limit else good(MESH, "capacity", seen)
    pools = ", ".join(f"{name}={count}" for name, count in sorted(capacity.pools.items()))
    yield good(MESH, "pools", f"ready: {pools}" if pools else "none")
    sandboxes = await mesh.sandboxes.list()
    async for finding in _check_records(mesh):
        yield finding
    broken = _by_reason(sandboxes)
    if broken:
        count = sum(len(ids) for ids in broken.values())
        reasons = "; ".join(f"{_named(ids)}: {reason}" for reason, ids in [*broken.items()][:3])
        yield warning(MESH, "sandboxes", f"{count} failed or lost: {reasons}", _BROKEN_FIX)


def _by_reason(sandboxes: Iterable[SandboxInfo]) -> dict[str, list[str]]:
    """Return the ids of sandboxes that failed or were lost, by the reason: that of a node is one for many."""
    found: dict[str, list[str]] = {}
    for one in sandboxes:
        if one.state in ("FAILED", "LOST"):
            found.setdefault(one.state_reason, []).append(one.sandbox_id)
    return found


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


async def _check_records(mesh: MeshAsync) -> AsyncIterator[Finding]:
    name = "records"
    try:
        report = await mesh.sweep(dry_run=True)
    except Denied:
        yield unknown(MESH, name, "only an administrator may compare them with the runtimes")
        return
    if report.recovering:
        yield warning(MESH, name, "the store came back empty: records are being rebuilt", "wait a moment")
        return
    saving = [finding for finding in report.findings if finding.kind == "saving"]
    if saving:
        first = "; ".join(f"{one.sandbox_id} since {one.since:%H:%M:%S}, {one.reason}" for one in saving[:3])
        yield good(MESH, "workspaces", f"{len(saving)} being saved: {first}")
    differences = [finding for finding in report.findings if finding.kind not in ("stopping", "saving")]
    if not differences:
        yield good(MESH, name, "records and runtimes agree")
        return
    first = "; ".join(
        f"{difference.sandbox_id or difference.node_id}: {difference.kind}, {difference.reason}"
        for difference in differences[:3]
    )
    yield warning(MESH, name, f"{len(differences)} differ: {first}", "sandmesh sweep --dry-run says more")


def _check_leftovers(settings: MeshSettings) -> Finding:
    folder = settings.state_directory / "meshes"
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    dead: list[str] = []
    for name in names:
        paths = settings.model_copy(update={"mesh_id": name}).paths
        has_sandboxes = paths.sandboxes.is_dir() and any(paths.sandboxes.iterdir())
        if paths.lock.exists() and holder(paths.lock) is None and has_sandboxes:
            dead.append(name)
    if not dead:
        return good(MESH, "leftovers", "none of meshes that were killed")
    one = next((name for name in dead if not name.startswith(PREFIX)), None)
    fix = "the next start of any mesh removes it" if one is None else f"SANDMESH_MESH_ID={one} sandmesh down"
    more = f" and {len(dead) - 3} more" if len(dead) > 3 else ""
    return warning(MESH, "leftovers", f"sandboxes of meshes that do not run: {', '.join(dead[:3])}{more}", fix)
