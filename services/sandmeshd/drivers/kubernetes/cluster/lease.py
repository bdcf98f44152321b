"""The Lease of a mesh in a cluster: of the drivers of one mesh one is active, since two would answer for its sandboxes.

Whether a holder is still there shows by its renewals, as this process sees them arrive: clocks of other machines are
not compared.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import structlog

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.drivers.kubernetes.cluster.requests import CONFLICT, NOT_FOUND, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.names import mesh_labels, policy_name

API = "/apis/coordination.k8s.io/v1"
LEASE_SECONDS, RENEW_SECONDS, LOOK_SECONDS = 10.0, 3.0, 0.5

log = structlog.get_logger()


class HeldLease:
    """The Lease of one mesh, which this process holds and renews."""

    def __init__(self, cluster: Cluster, mesh_id: str, node_id: str) -> None:
        self._cluster = cluster
        self._mesh_id = mesh_id
        self._path = cluster.path("leases", policy_name(mesh_id), API)
        self._holder = f"{node_id} on {socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(4)}"
        self._version = ""
        self._other = ""
        self._renewed = -LEASE_SECONDS

    @property
    def is_sure(self) -> bool:
        """Whether it was renewed so recently that no other driver can have taken it, nor can for some seconds more."""
        return asyncio.get_running_loop().time() - self._renewed < LEASE_SECONDS / 2

    def check(self) -> None:
        """Check that the Lease is held.

        Raises:
            RuntimeUnavailable: Another driver of the mesh took it, as this one could not renew it in time.
        """
        if self._other:
            raise _taken(self._mesh_id, self._other)

    async def acquire(self) -> None:
        """Take the Lease; that of a holder which does not renew it any more is taken over.

        Raises:
            RuntimeUnavailable: Another driver of the mesh is active.
        """
        loop = asyncio.get_running_loop()
        seen, since = "", loop.time()
        while True:
            lease = await self._cluster.find(self._path)
            spec: dict[str, Any] = lease["spec"] if lease else {}
            holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime"))
            if holder and seen and renewed != seen:
                raise _taken(self._mesh_id, holder)
            if not holder or loop.time() - since > LEASE_SECONDS:
                if await self._write(lease):
                    return
                seen, since = "", loop.time()
                continue
            seen = renewed
            await asyncio.sleep(LOOK_SECONDS)

    async def _write(self, lease: dict[str, Any] | None) -> bool:
        """Write this process as the holder; return False where another was faster."""
        body, begun = self._body(), asyncio.get_running_loop().time()
        try:
            if lease is None:
                made = await self._cluster.create(self._cluster.path("leases", api=API), body)
            else:
                body["metadata"] = {"resourceVersion": lease["metadata"]["resourceVersion"]}
                made = await self._cluster.patch(self._path, body)
        except ApiRefusal as refusal:
            if refusal.status in (CONFLICT, NOT_FOUND):
                return False
            raise
        self._version, self._other, self._renewed = str(made["metadata"]["resourceVersion"]), "", begun
        return True

    def _body(self) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": int(LEASE_SECONDS), "renewTime": now}
        described = {"name": policy_name(self._mesh_id), "labels": mesh_labels(self._mesh_id)}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": described, "spec": spec}

    async def renew(self) -> None:
        """Renew the Lease forever."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew()
            except (SandmeshError, ApiRefusal) as error:
                log.warning("the lease of the mesh was not renewed; it is retried", reason=str(error))

    async def _renew(self) -> None:
        if not self._other and await self._write({"metadata": {"resourceVersion": self._version}}):
            return
        lease = await self._cluster.find(self._path)
        holder = str(lease["spec"].get("holderIdentity") or "") if lease else ""
        if holder in ("", self._holder):
            await self._write(lease)
        elif holder != self._other:
            log.error("another driver of the mesh is active; this one creates nothing", holder=holder)
            self._other = holder

    async def release(self) -> None:
        """Release the Lease, unless it is another's."""
        with suppress(SandmeshError, ApiRefusal):
            # Its version may be that of a renewal whose answer was not awaited.
            lease = await self._cluster.find(self._path)
            if lease is not None and lease["spec"].get("holderIdentity") == self._holder:
                await self._cluster.delete(self._path, version=lease["metadata"]["resourceVersion"])


def _taken(mesh_id: str, holder: str) -> RuntimeUnavailable:
    fix = "end that driver, or give this one another SANDMESH_MESH_ID or namespace"
    message = f"another driver of the mesh {mesh_id!r} is active in this namespace ({holder}): {fix}"
    return RuntimeUnavailable(message, {"fix": fix, "holder": holder})


@asynccontextmanager
async def held_lease(cluster: Cluster, mesh_id: str, node_id: str) -> AsyncGenerator[HeldLease]:
    """Hold the Lease of a mesh, and give it up at the end.

    Raises:
        RuntimeUnavailable: As `HeldLease.acquire`.
    """
    lease = HeldLease(cluster, mesh_id, node_id)
    await lease.acquire()
    renewing = asyncio.create_task(lease.renew())
    try:
        yield lease
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await lease.release()
