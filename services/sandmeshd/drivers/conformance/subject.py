"""What the suite runs against."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver


@dataclass(frozen=True)
class Boundary:
    """What only the runtime knows of a sandbox's walls."""

    writable_mounts: frozenset[str]
    """Where user code may write, as mount points inside."""

    processes: Callable[[str], list[int]]
    """The sandbox's processes by id, as pids of the node; PID 1 is the first."""

    hidden: tuple[str, ...] = ()
    """Paths of the node that must not be there inside."""

    interfaces: tuple[str, ...] = ("lo",)
    """The interfaces of the network namespace: by all but the loopback nothing of user code's goes out."""


@dataclass(frozen=True)
class Subject:
    """A driver under test."""

    open: Callable[[], AbstractAsyncContextManager[Driver]]
    """Opens the driver on the same runtime state each time; what it made must outlive it."""

    mesh_id: str
    """A mesh that only the suite uses."""

    template: str
    """A template with Python and a shell, prepared before."""

    unprepared: str | None
    """A template that was not prepared; None where all are."""

    leftovers: Callable[[], set[str]]
    """Everything on the node that is the mesh's: processes, mounts, sockets, folders, descriptors."""

    boundary: Boundary

    shared: str = ""
    """A directory of the node, writable for user code, that workspaces may be in; empty: there is none."""

    image: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the spec of each of the suite's sandboxes, for an image as their root; empty: the template's own."""

    lease: Callable[[], int] | None = None
    """Gives a port of the node's range that no sandbox has; None where sandboxes need none."""

    def request(self, sandbox_id: str = "", **fields: object) -> pb.CreateSandboxRequest:
        """Return a request for a sandbox, by default with a new id, and with fields of its spec."""
        spec = sandbox_pb2.SandboxSpec(template=self.template, **{**self.image, **fields})  # type: ignore[arg-type]  # fields by name
        ports = [self.lease()] if self.lease else []
        return pb.CreateSandboxRequest(sandbox_id=sandbox_id or new_id(), mesh_id=self.mesh_id, spec=spec, ports=ports)

    @asynccontextmanager
    async def sandbox(self, driver: Driver, **fields: object) -> AsyncGenerator[pb.RuntimeSandbox]:
        """Yield a sandbox and delete it afterwards."""
        request = self.request("", **fields)
        try:
            yield (await driver.create_sandbox(request)).sandbox
        finally:
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))


Requirement: TypeAlias = Callable[[Subject], Awaitable[None]]


def new_id() -> str:
    """Return an id that no sandbox has."""
    return f"sb_{secrets.token_hex(13)}"
