"""The client of a mesh for programs without an event loop: each method is the async twin's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from sandmesh._client.sync import BlockingIterator, Facade, blocking, blocking_iterator, run
from sandmesh.inputs import Options
from sandmesh.mesh.audit import AuditAsync
from sandmesh.mesh.client import CONCURRENCY, REQUEST_SECONDS, MeshAsync
from sandmesh.mesh.events import EventsAsync
from sandmesh.mesh.quotas import QuotasAsync
from sandmesh.mesh.resources import MeshPortsAsync, MeshSnapshotsAsync, TemplatesAsync, TokensAsync
from sandmesh.mesh.sandboxes import SandboxesAsync
from sandmesh.mesh.secrets import MeshSecretsAsync
from sandmesh.mesh.sessions import SessionsAsync
from sandmesh.mesh.usage import UsageAsync
from sandmesh.shared.fork_lock import fork_lock

if TYPE_CHECKING:
    from sandmesh.mesh.batch import BatchItem, OnError
    from sandmesh.sandbox.sync import BaseSandbox
    from sandmesh.sandbox.sync_handles import Network


class Sandboxes(Facade):
    """The sandboxes of a mesh: `mesh.sandboxes`."""

    def __init__(self, twin: SandboxesAsync) -> None:
        self.twin: SandboxesAsync = twin

    list = blocking(SandboxesAsync.list)
    get = blocking(SandboxesAsync.get)
    kill = blocking(SandboxesAsync.kill)
    pause = blocking(SandboxesAsync.pause)
    resume = blocking(SandboxesAsync.resume)

    def network(self, sandbox_id: str) -> Network:
        """Return the network of a sandbox: show, allow, deny, set."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import Network  # noqa: PLC0415 - few programs need it

        return Network(self.twin.network(sandbox_id))

    release_all = blocking(SandboxesAsync.release_all)
    logs = blocking(SandboxesAsync.logs)
    follow_logs = blocking_iterator(SandboxesAsync.follow_logs)


class Events(Facade):
    """The events of a mesh: `mesh.events`. They outlive their sandboxes for a while."""

    def __init__(self, twin: EventsAsync) -> None:
        self.twin: EventsAsync = twin

    list = blocking(EventsAsync.list)
    follow = blocking_iterator(EventsAsync.follow)


class Sessions(Facade):
    """The sessions of a mesh: `mesh.sessions`. To renew and use their sandboxes there is SandboxService."""

    def __init__(self, twin: SessionsAsync) -> None:
        self.twin: SessionsAsync = twin

    connect = blocking(SessionsAsync.connect)
    get = blocking(SessionsAsync.get)
    list = blocking(SessionsAsync.list)
    release = blocking(SessionsAsync.release)


class Tokens(Facade):
    """The tokens of a mesh: `mesh.tokens`. Every method needs the scope admin or project-admin."""

    def __init__(self, twin: TokensAsync) -> None:
        self.twin: TokensAsync = twin

    create = blocking(TokensAsync.create)
    create_for_sandbox = blocking(TokensAsync.create_for_sandbox)
    create_for_project = blocking(TokensAsync.create_for_project)
    list = blocking(TokensAsync.list)
    revoke = blocking(TokensAsync.revoke)


class Audit(Facade):
    """Who changed what in a mesh, and who was refused: `mesh.audit`. It needs the scope admin."""

    def __init__(self, twin: AuditAsync) -> None:
        self.twin: AuditAsync = twin

    list = blocking(AuditAsync.list)


class Quotas(Facade):
    """The quotas of a mesh: `mesh.quotas`. Every method needs the scope admin, else it raises PermissionDenied."""

    def __init__(self, twin: QuotasAsync) -> None:
        self.twin: QuotasAsync = twin

    list = blocking(QuotasAsync.list)
    set = blocking(QuotasAsync.set)
    assign = blocking(QuotasAsync.assign)


class MeshUsage(Facade):
    """What projects and sandboxes had: `mesh.usage`. It needs the scope admin."""

    def __init__(self, twin: UsageAsync) -> None:
        self.twin: UsageAsync = twin

    list = blocking(UsageAsync.list)


class MeshSecrets(Facade):
    """The secrets that a mesh stores: `mesh.secrets`. Values go in and never come out."""

    def __init__(self, twin: MeshSecretsAsync) -> None:
        self.twin: MeshSecretsAsync = twin

    list = blocking(MeshSecretsAsync.list)
    set = blocking(MeshSecretsAsync.set)
    remove = blocking(MeshSecretsAsync.remove)


class Templates(Facade):
    """The templates of a mesh: `mesh.templates`."""

    def __init__(self, twin: TemplatesAsync) -> None:
        self.twin: TemplatesAsync = twin

    list = blocking(TemplatesAsync.list)
    register = blocking(TemplatesAsync.register)


class MeshSnapshots(Facade):
    """The snapshots of a mesh: `mesh.snapshots`."""

    def __init__(self, twin: MeshSnapshotsAsync) -> None:
        self.twin: MeshSnapshotsAsync = twin

    create = blocking(MeshSnapshotsAsync.create)
    list = blocking(MeshSnapshotsAsync.list)
    delete = blocking(MeshSnapshotsAsync.delete)


class MeshPorts(Facade):
    """The exposed ports of a mesh's sandboxes: `mesh.ports`."""

    def __init__(self, twin: MeshPortsAsync) -> None:
        self.twin: MeshPortsAsync = twin

    expose = blocking(MeshPortsAsync.expose)
    show_desktop = blocking(MeshPortsAsync.show_desktop)
    show_browser = blocking(MeshPortsAsync.show_browser)
    show_mobile = blocking(MeshPortsAsync.show_mobile)
    list = blocking(MeshPortsAsync.list)
    revoke = blocking(MeshPortsAsync.revoke)


class Mesh(Facade):
    """A client of a mesh that runs: `with Mesh() as mesh: ...`.

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
        self.twin: MeshAsync = MeshAsync(base_url, bearer_token, timeout, ca_cert=ca_cert)

    @property
    def sandboxes(self) -> Sandboxes:
        """The sandboxes: list, get, kill, and their logs."""
        return Sandboxes(self.twin.sandboxes)

    @property
    def events(self) -> Events:
        """What happened to sandboxes: list, follow."""
        return Events(self.twin.events)

    @property
    def sessions(self) -> Sessions:
        """The sessions: connect, get, list, release."""
        return Sessions(self.twin.sessions)

    @property
    def tokens(self) -> Tokens:
        """The tokens of clients: create, list, revoke."""
        return Tokens(self.twin.tokens)

    @property
    def audit(self) -> Audit:
        """Who changed what, and who was refused: list."""
        return Audit(self.twin.audit)

    @property
    def quotas(self) -> Quotas:
        """The quotas of projects and users: list, set, assign."""
        return Quotas(self.twin.quotas)

    @property
    def usage(self) -> MeshUsage:
        """What projects and sandboxes had: list."""
        return MeshUsage(self.twin.usage)

    @property
    def secrets(self) -> MeshSecrets:
        """The secrets that the mesh stores: list, set, remove."""
        return MeshSecrets(self.twin.secrets)

    @property
    def templates(self) -> Templates:
        """The templates: list, register."""
        return Templates(self.twin.templates)

    @property
    def snapshots(self) -> MeshSnapshots:
        """The snapshots: create, list, delete."""
        return MeshSnapshots(self.twin.snapshots)

    @property
    def ports(self) -> MeshPorts:
        """The URLs of sandboxes' ports: expose, list, revoke."""
        return MeshPorts(self.twin.ports)

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
    ) -> BlockingIterator[BatchItem[BaseSandbox]]:
        """Create `count` sandboxes, and return them one by one as each is ready, as `MeshAsync.create_many`.

        Raises:
            InvalidArgument: A value does not fit; no sandbox was created.
        """
        with fork_lock:
            from sandmesh.mesh.batch import BatchPlan, batch_options  # noqa: PLC0415 - few programs need it
            from sandmesh.sandbox.builtin import sync_class  # noqa: PLC0415 - few programs need it

        plan = BatchPlan(count=count, concurrency=concurrency, deadline=deadline, on_error=on_error)
        made = sync_class(sandbox_type)
        items = self.twin.batch(plan, made, lambda box: box.twin, batch_options(options, job), sandbox_type)
        return BlockingIterator(items, "MeshAsync")

    whoami = blocking(MeshAsync.whoami)
    capacity = blocking(MeshAsync.capacity)
    health = blocking(MeshAsync.health)
    sweep = blocking(MeshAsync.sweep)

    def start(self) -> Self:
        """Connect to the mesh; a client that is open stays as it is.

        Raises:
            MeshUnavailable: No address is known and no local mesh runs.
            InvalidArgument: The address or `ca_cert` cannot be used.
        """
        run("MeshAsync", self.twin.start())
        return self

    def close(self) -> None:
        """Disconnect; the mesh stays as it is. Closing twice changes nothing."""
        run("MeshAsync", self.twin.close())

    def __enter__(self) -> Self:
        """Connect."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Disconnect."""
        self.close()
