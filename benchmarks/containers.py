"""What only the engine knows of a mesh's containers."""

from __future__ import annotations

import os
from typing import Any

from aiodocker import Docker

from benchmarks.meshes import RunningMesh, processes_below

LABEL = "dev.sandmesh.mesh"


async def processes_of(mesh: RunningMesh) -> set[int]:
    """Return the processes of a mesh with those of its sandboxes, which are the engine's where they are containers."""
    found = processes_below(mesh.pid)
    for shown in await _engine_get(mesh, "json"):
        first = int(shown["State"]["Pid"])
        found |= {first, *processes_below(first)}
    return found


async def group_bytes(mesh: RunningMesh) -> list[int]:
    """Return the memory of each container by its control group, without files that it could let go of."""
    found = [shown["memory_stats"] for shown in await _engine_get(mesh, "stats", stream="0")]
    return [int(one["usage"]) - int(_reclaimable(one["stats"])) for one in found]


def _reclaimable(stats: dict[str, int]) -> int:
    return stats.get("total_inactive_file", stats.get("inactive_file", 0))


async def _engine_get(mesh: RunningMesh, what: str, **parameters: str) -> list[dict[str, Any]]:
    if not mesh.in_docker:
        return []
    async with Docker(url=os.environ.get("SANDMESH_DOCKER_URL")) as docker:
        # Half of its signatures are untyped.
        api: Any = docker
        containers = await api.containers.list(filters={"label": [f"{LABEL}={mesh.mesh_id}"]})
        paths = [f"containers/{container.id}/{what}" for container in containers]
        return [await api._query_json(path, params=parameters) for path in paths]  # noqa: SLF001 - it has no way for one answer of stats
