"""The client of a mesh for programs with an event loop; the sync one in `sandmesh.mesh.sync` is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from sandmesh._client.addresses import configured
from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_seconds
from sandmesh._client.process_state import process
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import MeshUnavailable, WrongState
from sandmesh.inputs import Options
from sandmesh.mesh.events import EventsAsync
from sandmesh.mesh.messages import read_capacity, read_health, read_sweep
from sandmesh.mesh.records import Capacity, MeshHealth, SweepReport
from sandmesh.mesh.resources import MeshPortsAsync, MeshSnapshotsAsync, TemplatesAsync
from sandmesh.mesh.rpc import Rpc, Subscription
from sandmesh.mesh.sandboxes import SandboxesAsync
from sandmesh.mesh.sessions import SessionsAsync
from sandmesh.shared.fork_lock import fork_lock

if TYPE_CHECKING:
    from sandmesh.mesh.batch import B, BatchItem, BatchPlan, OnError
    from sandmesh.sandbox.boxes import BaseSandboxAsync, SandboxAsync
from sandmesh.api.token.v1 import token_pb2
from sandmesh.mesh.audit import AuditAsync
from sandmesh.mesh.principal import PrincipalInfo, read_principal
from sandmesh.mesh.quotas import QuotasAsync
from sandmesh.mesh.resources import TokensAsync
from sandmesh.mesh.secrets import MeshSecretsAsync
from sandmesh.mesh.usage import UsageAsync


class Administration:
    """What of a mesh is about users and what they may do."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def whoami(self) -> PrincipalInfo:
        """Return who this client is: the scope of its token, and whose it is.

        Raises:
            Unauthenticated: The mesh does not accept the token.
        """
        request = token_pb2.GetPrincipalRequest()
        return read_principal(await self._rpc.send(lambda stubs: stubs.tokens.GetPrincipal, request))

    @property
    def tokens(self) -> TokensAsync:
        """The tokens of clients: create, list, revoke."""
        return TokensAsync(self._rpc)

    @property
    def audit(self) -> AuditAsync:
        """Who changed what, and who was refused: list."""
        return AuditAsync(self._rpc)

    @property
    def quotas(self) -> QuotasAsync:
        """The quotas of projects and users: list, set, assign."""
        return QuotasAsync(self._rpc)

    @property
    def usage(self) -> UsageAsync:
        """What projects and sandboxes had: list."""
        return UsageAsync(self._rpc)

    @property
    def secrets(self) -> MeshSecretsAsync:
        """The secrets that the mesh stores: list, set, remove."""
        return MeshSecretsAsync(self._rpc)


# Batches, and with them the boxes, are imported at their first use: most programs, and the commands, have none.

REQUEST_SECONDS = 10.0
SWEEP_SECONDS = 60.0
BOX_SECONDS = 3000.0
CONCURRENCY = 8
"""More would not be faster on one machine, and would make the creates of others wait longer."""


def find_mesh(base_url: str | None = None) -> str | None:
    """Return the address that a client uses: `base_url`, else SANDMESH_ADDRESS, else this user's local mesh, else None.

    The local mesh counts only while it answers; nothing is started.
    """
    return configured(base_url)


class MeshAsync(Administration):
    """A client of a mesh that runs: `async with MeshAsync() as mesh: ...`.

    Without `base_url` the mesh is the one at SANDMESH_ADDRESS, else this user's local one, else the private mesh that
    this program's sandboxes already run on. No mesh is started: an empty one would have nothing to show.
    A token of the scope user sees what belongs to its user; tokens, quotas, usage, the audit, health and sweeps need
    the scope admin.
    """

    def __init__(
        self,
        base_url: str | None = None,
        bearer_token: str | None = None,
        timeout: float = REQUEST_SECONDS,
        *,
        ca_cert: str | Path | None = None,
    ) -> None:
        """Set the mesh's address and the seconds that a request may take; nothing is connected before `start`.

        Raises:
            InvalidArgument: `timeout` is not a number above 0.
        """
        self._base_url = base_url
        self._bearer_token = bearer_token
        self._ca_cert = ca_cert
        self._connection: Connection | None = None
        super().__init__(Rpc(self._connected, read_seconds("timeout", timeout)))

    @property
    def sandboxes(self) -> SandboxesAsync:
        """The sandboxes: list, get, kill, and their logs."""
        return SandboxesAsync(self._rpc)

    @property
    def events(self) -> EventsAsync:
        """What happened to sandboxes: list, follow."""
        return EventsAsync(self._rpc)

    @property
    def sessions(self) -> SessionsAsync:
        """The sessions: connect, get, list, release."""
        return SessionsAsync(self._rpc)

    @property
    def templates(self) -> TemplatesAsync:
        """The templates: list, register."""
        return TemplatesAsync(self._rpc)

    @property
    def snapshots(self) -> MeshSnapshotsAsync:
        """The snapshots: create, list, delete."""
        return MeshSnapshotsAsync(self._rpc)

    @property
    def ports(self) -> MeshPortsAsync:
        """The URLs of sandboxes' ports: expose, list, revoke."""
        return MeshPortsAsync(self._rpc)

    async def start(self) -> Self:
        """Connect to the mesh; a client that is open stays as it is.

        Raises:
            MeshUnavailable: No address is known and no local mesh runs.
            InvalidArgument: The address or `ca_cert` cannot be used.
        """
        if self._connection is None:
            if configured(self._base_url) is None and not process().has_private_mesh:
                fix = "start one with `sandmesh up -d`, or name one by base_url (--base-url) or SANDMESH_ADDRESS"
                raise MeshUnavailable(f"no mesh of this user runs here: {fix}", {"fix": fix})
            self._connection = await acquire(self._base_url, self._bearer_token, self._rpc.timeout, self._ca_cert)
        return self

    async def close(self) -> None:
        """Disconnect; the mesh stays as it is. Closing twice changes nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await release(connection)

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Disconnect."""
        await self.close()

    def create_many(
        self,
        count: int,
        sandbox_type: str = "base",
        *,
        job: str | None = None,
        concurrency: int = CONCURRENCY,
        deadline: float | None = None,
        on_error: OnError = "list",
        **options: Unpack[Options],
    ) -> Subscription[BatchItem[BaseSandboxAsync]]:
        """Create `count` sandboxes, and return them one by one as each is ready.

        They wait behind all other creates, and few start simultaneously on a node; at most `concurrency` are
        requested at a time. `job` becomes their label "job", by which `sandboxes.release_all` ends them together; jobs
        take turns, of which `fair_share=3` gives this one three for one of another. After `deadline` seconds those that
        are not ready are items with DeadlineExceeded. With `on_error="list"` each failure is an item with its error;
        with "raise" the first one ends the batch. Closing the iteration cancels what is under way; sandboxes that it
        has yielded are the caller's to close. The other arguments are those of a box.

        Raises:
            InvalidArgument: A value does not fit; no sandbox was created.
        """
        with fork_lock:
            from sandmesh.mesh.batch import BatchPlan, batch_options  # noqa: PLC0415 - see above
            from sandmesh.sandbox.builtin import async_class  # noqa: PLC0415 - see above

        plan = BatchPlan(count=count, concurrency=concurrency, deadline=deadline, on_error=on_error)
        self._connected()
        return self.batch(plan, async_class(sandbox_type), lambda box: box, batch_options(options, job), sandbox_type)

    def batch(
        self,
        plan: BatchPlan,
        made: type[B],
        twin: Callable[[B], SandboxAsync],
        options: Options,
        sandbox_type: str,
    ) -> Subscription[BatchItem[B]]:
        """Return the iteration of a batch, whose boxes are of the class `made`; `create_many` calls it."""
        with fork_lock:
            from sandmesh.mesh.batch import BoxMaker, create_all  # noqa: PLC0415 - see above

        if self._ca_cert is not None:
            options.setdefault("ca_cert", self._ca_cert)

        def make() -> B:
            return made(None, BOX_SECONDS, self._base_url, self._bearer_token, sandbox_type, **options)

        make()  # It checks the options before anything is created.
        return Subscription(create_all(plan, BoxMaker(make, twin)))

    async def capacity(self) -> Capacity:
        """Return how many sandboxes the mesh has and may have, and what waits in its pools."""
        return read_capacity(await self._rpc.send(lambda stubs: stubs.sandboxes.GetCapacity, pb.GetCapacityRequest()))

    async def health(self) -> MeshHealth:
        """Return what is wrong with the mesh now, its nodes, and the templates being built.

        Neither the store nor a node is asked for it, so that it answers when they do not.

        Raises:
            PermissionDenied: The token's scope is not admin.
        """
        request = pb.GetMeshHealthRequest()
        return read_health(await self._rpc.send(lambda stubs: stubs.sandboxes.GetMeshHealth, request))

    async def sweep(self, *, dry_run: bool = False, timeout: float = SWEEP_SECONDS) -> SweepReport:
        """Compare records and runtimes now, without a grace time, and fix what differs; with `dry_run` only report it.

        Raises:
            PermissionDenied: The token's scope is not admin.
        """
        request = pb.SweepMeshRequest(dry_run=dry_run)
        return read_sweep(await self._rpc.send(lambda stubs: stubs.sandboxes.SweepMesh, request, timeout))

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None:
            message = "this client of a mesh is not open: enter it by `with` or `async with`, or start() it"
            raise WrongState(message, {"state": "CLOSED"})
        if asyncio.get_running_loop() is not connection.loop:
            message = "this client was opened in another event loop: open, use and close it in one"
            raise WrongState(message, {"state": "FOREIGN_LOOP"})
        return connection
