"""Sandboxes for programs without an event loop: each method is the async twin's, one line a method."""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from sandmesh._client.sync import Facade, blocking, blocking_iterator, run
from sandmesh._files.sync_api import Files
from sandmesh.inputs import Options
from sandmesh.sandbox.boxes import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync
from sandmesh.sandbox.ports import ExposedPortAsync
from sandmesh.sandbox.registered_classes import registered
from sandmesh.sandbox.sync_kernels import Kernels
from sandmesh.sandbox.sync_processes import Processes
from sandmesh.sandbox.toolkit import Toolkit


class ExposedPort(Facade):
    """A port that a URL leads to until `expires`; whoever has the URL may use it."""

    def __init__(self, twin: ExposedPortAsync) -> None:
        self.twin: ExposedPortAsync = twin
        self.exposure_id = twin.exposure_id
        self.port = twin.port
        self.url = twin.url
        self.expires = twin.expires
        self.connections = twin.connections

    revoke = blocking(ExposedPortAsync.revoke)


class Sandbox(Facade):
    """One sandbox of any type: `with Sandbox(sandbox_type="base") as box: ...`.

    Without `sandbox_id` it makes a sandbox and gives it back when it is closed; with one it attaches to that sandbox,
    which stays. `timeout` is seconds for each operation. Without `base_url` the mesh is the one at SANDMESH_ADDRESS,
    else this user's local one, else a private one that ends with this process.
    """

    twin_class: ClassVar[type[SandboxAsync]] = SandboxAsync

    def __init__(
        self,
        sandbox_id: str | None = None,
        timeout: float = 3000,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Say what is wanted; nothing is made before `start`.

        Raises:
            InvalidArgument: A value does not fit.
        """
        kind = sandbox_type or registered().type_of(type(self))
        self.twin: SandboxAsync = self.twin_class(sandbox_id, timeout, base_url, bearer_token, kind, **options)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id.

        Raises:
            WrongState: It has none yet: the box was not started.
        """
        return self.twin.sandbox_id

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type; of one that was attached to, its template once the box is open."""
        return self.twin.sandbox_type

    @property
    def kernels(self) -> Kernels:
        """The sandbox's kernels: create, get, list."""
        return Kernels(self.twin.kernels)

    @property
    def processes(self) -> Processes:
        """The sandbox's processes: start, list, attach."""
        return Processes(self.twin.processes)

    def start(self) -> Self:
        """Make the sandbox or attach to it; a box that is open stays as it is.

        Raises:
            WrongState: The box was closed.
            SandmeshError: The sandbox could not be had; nothing is left behind.
        """
        self._start()
        return self

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Close."""
        self.close()

    @property
    def fs(self) -> Files:
        """The sandbox's files."""
        return Files(self.twin.fs)

    def expose(self, port: int, *, ttl: float = 3600.0) -> ExposedPort:
        """Give a URL that carries HTTP and WebSocket to a port of the sandbox, for `ttl` seconds (1 to 30 days).

        Nothing needs to listen there yet. Whoever has the URL may use it until it is revoked.

        Raises:
            CapabilityMissing: The mesh serves no HTTP.
        """
        return ExposedPort(run(type(self.twin).__name__, self.twin.expose(port, ttl=ttl)))

    def list_exposed(self) -> list[ExposedPort]:
        """Give the URLs that lead to ports of the sandbox now."""
        return [ExposedPort(each) for each in run(type(self.twin).__name__, self.twin.list_exposed())]

    def as_tools(self, form: str = "openai") -> Toolkit:
        """Give all tools as a model is told of them, with what runs its calls: "openai", "anthropic" or "mcp"."""
        return Toolkit(self, form, self.list_tools())

    _start = blocking(SandboxAsync.start)
    close = blocking(SandboxAsync.close)
    get_info = blocking(SandboxAsync.get_info)
    get_status = blocking(SandboxAsync.get_status)
    check_health = blocking(SandboxAsync.check_health)
    pause = blocking(SandboxAsync.pause)
    resume = blocking(SandboxAsync.resume)
    renew = blocking(SandboxAsync.renew)
    snapshot = blocking(SandboxAsync.snapshot)
    list_snapshots = blocking(SandboxAsync.list_snapshots)
    delete_snapshot = blocking(SandboxAsync.delete_snapshot)
    list_events = blocking(SandboxAsync.list_events)
    list_tools = blocking(SandboxAsync.list_tools)
    call_tool = blocking(SandboxAsync.call_tool)
    add_mcp_servers = blocking(SandboxAsync.add_mcp_servers)
    remove_mcp_server = blocking(SandboxAsync.remove_mcp_server)
    list_mcp_servers = blocking(SandboxAsync.list_mcp_servers)
    watch_tools = blocking_iterator(SandboxAsync.watch_tools)
    call = blocking(SandboxAsync.call)
    stream = blocking_iterator(SandboxAsync.stream)


class BaseSandbox(Sandbox):
    """A sandbox with a Python kernel, a shell and the history of its workspace."""

    twin_class: ClassVar[type[SandboxAsync]] = BaseSandboxAsync

    run_ipython_cell = blocking(BaseSandboxAsync.run_ipython_cell)
    run_shell_command = blocking(BaseSandboxAsync.run_shell_command)
    commit_changes = blocking(BaseSandboxAsync.commit_changes)
    generate_diff = blocking(BaseSandboxAsync.generate_diff)
    git_logs = blocking(BaseSandboxAsync.git_logs)


class FilesystemSandbox(BaseSandbox):
    """A sandbox with a Python kernel, a shell and tools for the files of its workspace."""

    twin_class: ClassVar[type[SandboxAsync]] = FilesystemSandboxAsync

    read_file = blocking(FilesystemSandboxAsync.read_file)
    read_multiple_files = blocking(FilesystemSandboxAsync.read_multiple_files)
    write_file = blocking(FilesystemSandboxAsync.write_file)
    edit_file = blocking(FilesystemSandboxAsync.edit_file)
    create_directory = blocking(FilesystemSandboxAsync.create_directory)
    list_directory = blocking(FilesystemSandboxAsync.list_directory)
    directory_tree = blocking(FilesystemSandboxAsync.directory_tree)
    move_file = blocking(FilesystemSandboxAsync.move_file)
    search_files = blocking(FilesystemSandboxAsync.search_files)
    get_file_info = blocking(FilesystemSandboxAsync.get_file_info)
    list_allowed_directories = blocking(FilesystemSandboxAsync.list_allowed_directories)
