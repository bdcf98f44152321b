"""The Lease of a mesh: who gives it up leaves nothing of it, and takes nothing from another."""

from __future__ import annotations

from typing import Any, cast

from sandmeshd.drivers.kubernetes.cluster.lease import HeldLease
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster


class Server:
    """An API server that keeps one Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._version = 0

    def path(self, kind: str, name: str = "", api: str = "") -> str:
        return f"{api}/{kind}/{name}"

    async def find(self, path: str) -> dict[str, Any] | None:
        return self.lease

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.write(body["spec"])

    async def delete(self, path: str, version: str) -> None:
        # One of another version stays, as a conflict that the client takes for an answer.
        if self.lease is not None and self.lease["metadata"]["resourceVersion"] == version:
            self.lease = None

    def write(self, spec: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.lease = {"metadata": {"resourceVersion": str(self._version)}, "spec": spec}
        return self.lease


async def held(server: Server) -> HeldLease:
    lease = HeldLease(cast("Cluster", server), "mesh", "node")
    await lease.acquire()
    return lease


async def test_a_lease_is_given_up_although_the_answer_of_its_last_renewal_was_not_waited_for() -> None:
    server = Server()
    lease = await held(server)
    assert server.lease is not None
    server.write(server.lease["spec"])
    await lease.release()
    assert server.lease is None


async def test_a_lease_that_another_driver_took_stays() -> None:
    server = Server()
    lease = await held(server)
    theirs = server.write({"holderIdentity": "another", "renewTime": "now"})
    await lease.release()
    assert server.lease is theirs
