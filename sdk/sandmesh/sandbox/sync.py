"""Sandboxes for programs without an event loop: each method wraps the async twin's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from sandmesh._client.sync import Facade, blocking, blocking_iterator, run
from sandmesh.inputs import Options
from sandmesh.replies import read_reply_characters
from sandmesh.sandbox.boxes import (
    BaseSandboxAsync,
    BrowserSandboxAsync,
    FilesystemSandboxAsync,
    GuiSandboxAsync,
    MobileSandboxAsync,
    SandboxAsync,
)
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.tools.tool_groups import (
    BrowserTools,
    ComputerUseTools,
    FilesystemTools,
    GenericTools,
    GitTools,
    MobileTools,
)
from sandmesh.sandbox.tools.toolkit import Toolkit
from sandmesh.shared.fork_lock import fork_lock

if TYPE_CHECKING:
    from sandmesh._files.sync_api import Files
    from sandmesh.sandbox.kernels import Forks
    from sandmesh.sandbox.mcp.connection import NotificationHandler, RequestHandler
    from sandmesh.sandbox.screen.browser import Browser
    from sandmesh.sandbox.screen.desktop import Desktop
    from sandmesh.sandbox.screen.mobile import Mobile
    from sandmesh.sandbox.session.info import BoxSession
    from sandmesh.sandbox.sync_handles import ExposedPort, Kernels, McpConnection, Network, Processes, SandboxSecrets

# Kernels, processes, ports and files are imported at their first use: most programs use few of them.


class Lifecycle(Facade):
    """The methods of a box that are about its sandbox's lifecycle, snapshots and MCP servers."""

    close = blocking(SandboxAsync.close)
    get_info = blocking(SandboxAsync.get_info)
    get_status = blocking(SandboxAsync.get_status)
    check_health = blocking(SandboxAsync.check_health)
    pause = blocking(SandboxAsync.pause)
    resume = blocking(SandboxAsync.resume)
    renew = blocking(SandboxAsync.renew)
    list_events = blocking(SandboxAsync.list_events)
    snapshot = blocking(SandboxAsync.snapshot)
    list_snapshots = blocking(SandboxAsync.list_snapshots)
    delete_snapshot = blocking(SandboxAsync.delete_snapshot)
    mark = blocking(SandboxAsync.mark)
    rewind = blocking(SandboxAsync.rewind)
    drop = blocking(SandboxAsync.drop)
    diff = blocking(SandboxAsync.diff)
    commit = blocking(SandboxAsync.commit)
    discard = blocking(SandboxAsync.discard)
    add_mcp_servers = blocking(SandboxAsync.add_mcp_servers)
    remove_mcp_server = blocking(SandboxAsync.remove_mcp_server)
    list_mcp_servers = blocking(SandboxAsync.list_mcp_servers)
    watch_tools = blocking_iterator(SandboxAsync.watch_tools)


class Copies(Lifecycle):
    """The methods of a box that make others with its files."""

    twin: SandboxAsync

    def fork(self, count: int = 1, timeout: float = 120, *, kernels: bool | None = None) -> Forks[Self]:
        """Fork the sandbox into others with its files and kernels of Python, each an open box of this class.

        Each is created as this one was, with its own lease, tokens and network, and is released when it is closed.
        With `kernels`, those of Python continue with their variables and modules; None: where the driver and the
        kernels can, False: only workspace and home are copied. `not_copied` of the list names the rest, such as other
        processes. Where fewer than `count` (at most 100) were ready within `timeout` seconds, `error` says why.

        Raises:
            CapabilityMissing: Its driver takes no snapshots, or copies no kernels though they are to be.
            WrongState: It is paused, its workspace is a directory of the host, or a kernel that is to be copied runs
                a cell for all of the time, or has threads.
            SandmeshError: No fork could be created; nothing is left behind.
        """
        with fork_lock:
            from sandmesh.sandbox.kernels import Forks  # noqa: PLC0415 - see above

        twins = run("fork", self.twin.fork(count, timeout, kernels=kernels))
        boxes = [copy.copy(self) for _ in twins]
        for box, twin in zip(boxes, twins, strict=True):
            box.twin = twin
        return Forks(boxes, twins.error, twins.not_copied)

    def overlay(self) -> Self:
        """Return a box of this class for an overlay of this one's files, not yet opened.

        It is another sandbox, which begins with a copy of workspace and home: what is done there leaves this one
        unchanged. `branch.diff()` returns its changes of the workspace, `branch.commit()` applies them to this one.
        What is not committed is discarded when it is closed, when its lease ends, and by `branch.discard()`.

        Starting it raises what `fork` raises.
        """
        other = copy.copy(self)
        other.twin = self.twin.overlay()
        return other


class Sandbox(Copies):
    """One sandbox of any type: `with Sandbox(sandbox_type="base") as box: ...`.

    Without `sandbox_id` it creates a sandbox and releases it when it is closed; with one it attaches to that sandbox,
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
        """Configure the box; nothing is created before `start`.

        Raises:
            InvalidArgument: A value does not fit.
        """
        name = sandbox_type or class_registry().type_of(type(self))
        self.twin: SandboxAsync = self.twin_class(sandbox_id, timeout, base_url, bearer_token, name, **options)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id.

        Raises:
            WrongState: The box was not started, so there is no sandbox yet.
        """
        return self.twin.sandbox_id

    def __repr__(self) -> str:
        """Return the class, the sandbox and whether the box is open; neither address nor token."""
        return repr(self.twin).replace(type(self.twin).__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        with fork_lock:
            from sandmesh.results import pre  # noqa: PLC0415 - most programs show no box

        return pre(repr(self))

    @property
    def session(self) -> BoxSession | None:
        """Its session, where `SandboxService.connect` returned it: its ids, and whether the sandbox is new."""
        return self.twin.session

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type; for a box that attaches by id, the sandbox's template once the box is open."""
        return self.twin.sandbox_type

    @property
    def kernels(self) -> Kernels:
        """The sandbox's kernels: create, get, list."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import Kernels  # noqa: PLC0415 - see above

        return Kernels(self.twin.kernels)

    @property
    def processes(self) -> Processes:
        """The sandbox's processes: start, list, attach."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import Processes  # noqa: PLC0415 - see above

        return Processes(self.twin.processes)

    @property
    def network(self) -> Network:
        """What the sandbox may reach while it runs: show, allow, deny, set."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import Network  # noqa: PLC0415 - see above

        return Network(self.twin.network)

    @property
    def secrets(self) -> SandboxSecrets:
        """The secrets of the sandbox's requests: list, set, remove."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import SandboxSecrets  # noqa: PLC0415 - see above

        return SandboxSecrets(self.twin.secrets)

    @property
    def fs(self) -> Files:
        """The sandbox's files."""
        with fork_lock:
            from sandmesh._files.sync_api import Files  # noqa: PLC0415 - see above

        return Files(self.twin.fs)

    def start(self) -> Self:
        """Create the sandbox or attach to it; starting an open box changes nothing.

        Raises:
            WrongState: The box was closed.
            SandmeshError: The sandbox could not be provided; nothing is left behind.
        """
        self._start()
        return self

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Close."""
        self.close()

    def expose(self, port: int, *, ttl: float = 3600.0) -> ExposedPort:
        """Expose a port of the sandbox by a URL that carries HTTP and WebSocket, for `ttl` seconds (1 to 30 days).

        Nothing needs to listen there yet. Anyone with the URL can use it until it is revoked.

        Raises:
            CapabilityMissing: The mesh serves no HTTP.
        """
        with fork_lock:
            from sandmesh.sandbox.sync_handles import ExposedPort  # noqa: PLC0415 - see above

        return ExposedPort(run(type(self.twin).__name__, self.twin.expose(port, ttl=ttl)))

    def list_exposed(self) -> list[ExposedPort]:
        """List the exposed ports of the sandbox."""
        with fork_lock:
            from sandmesh.sandbox.sync_handles import ExposedPort  # noqa: PLC0415 - see above

        return [ExposedPort(each) for each in run(type(self.twin).__name__, self.twin.list_exposed())]

    def connect_mcp(
        self,
        capabilities: Mapping[str, Any] | None = None,
        on_request: RequestHandler | None = None,
        on_notification: NotificationHandler | None = None,
    ) -> McpConnection:
        """Connect to the sandbox's MCP servers as their client, for prompts, completions and resources.

        Servers that start from then on are told of the capabilities, "sampling" and "elicitation" as the protocol has
        them. Their requests for them go to `on_request`, which is called with server, method and params and returns
        the result; what it raises refuses the request. Without it they are refused. `on_notification` is called
        likewise with log messages and changes.

        Raises:
            InvalidArgument: There are capabilities and no `on_request`.
        """
        from sandmesh.sandbox.sync_handles import McpConnection  # noqa: PLC0415 - see above

        connection = McpConnection.__new__(McpConnection)
        connecting = self.twin.connect_mcp(capabilities, on_request, on_notification)
        connection.twin = run(type(self.twin).__name__, connecting)
        return connection

    @property
    def reply_characters(self) -> int:
        """The most characters of text that a model is sent for one call of this box."""
        return self.twin.reply_characters

    def as_tools(self, form: str = "openai", *, reply_characters: int | None = None) -> Toolkit:
        """Return all tools in a model's format, with a dispatcher for its calls.

        The format is "openai", "openai-responses", "anthropic" or "mcp"; names are unique and fit for all vendors. A
        reply has at most `reply_characters` of text, None: the box's.

        Raises:
            InvalidArgument: The format does not exist, or the bound is not a whole number above 0.
        """
        bound = self.reply_characters if reply_characters is None else read_reply_characters(reply_characters)
        return Toolkit(self, form, self.list_tools(), bound)

    _start = blocking(SandboxAsync.start)
    list_tools = blocking(SandboxAsync.list_tools)
    call_tool = blocking(SandboxAsync.call_tool)
    call = blocking(SandboxAsync.call)
    stats = blocking(SandboxAsync.stats)
    list_calls = blocking(SandboxAsync.list_calls)
    stream = blocking_iterator(SandboxAsync.stream)


class BaseSandbox(Sandbox, GenericTools, GitTools):
    """A sandbox with a Python kernel, a shell and the history of its workspace."""

    twin_class: ClassVar[type[SandboxAsync]] = BaseSandboxAsync


class FilesystemSandbox(BaseSandbox, FilesystemTools):
    """A sandbox with a Python kernel, a shell and tools for the files of its workspace."""

    twin_class: ClassVar[type[SandboxAsync]] = FilesystemSandboxAsync

    @property
    def desktop(self) -> Desktop:
        """The desktop of a sandbox whose template has one, as "gui" and "desktop" have: screen, windows, clipboard."""
        with fork_lock:
            from sandmesh.sandbox.screen.desktop import Desktop  # noqa: PLC0415 - see above

        return Desktop(cast("FilesystemSandboxAsync", self.twin).desktop)

    @property
    def desktop_url(self) -> str:
        """The URL of a page that shows the desktop, valid for half an hour at least; CapabilityMissing without one.

        `box.desktop.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return run(type(self.twin).__name__, cast("FilesystemSandboxAsync", self.twin).desktop_url)


class BrowserSandbox(BaseSandbox, BrowserTools):
    """A sandbox with a browser, beside a Python kernel and a shell."""

    twin_class: ClassVar[type[SandboxAsync]] = BrowserSandboxAsync

    @property
    def browser(self) -> Browser:
        """The sandbox's browser, for programs that speak its DevTools protocol."""
        with fork_lock:
            from sandmesh.sandbox.screen.browser import Browser  # noqa: PLC0415 - see above

        return Browser(cast("BrowserSandboxAsync", self.twin).browser)

    @property
    def browser_url(self) -> str:
        """The URL of a page that shows what the browser shows, valid for half an hour at least.

        `box.browser.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return run(type(self.twin).__name__, cast("BrowserSandboxAsync", self.twin).browser_url)

    @property
    def desktop_url(self) -> str:
        """The same as `browser_url`: the browser is all that there is to see."""
        return self.browser_url


class GuiSandbox(FilesystemSandbox, ComputerUseTools):
    """A sandbox with a desktop: a screen, a mouse and a keyboard, besides the tools of a filesystem sandbox."""

    twin_class: ClassVar[type[SandboxAsync]] = GuiSandboxAsync


class MobileSandbox(BaseSandbox, MobileTools):
    """A sandbox that holds an Android device, beside a Python kernel and a shell, where `adb` reaches it too."""

    twin_class: ClassVar[type[SandboxAsync]] = MobileSandboxAsync

    @property
    def mobile(self) -> Mobile:
        """The sandbox's device, for people who watch it."""
        with fork_lock:
            from sandmesh.sandbox.screen.mobile import Mobile  # noqa: PLC0415 - see above

        return Mobile(cast("MobileSandboxAsync", self.twin).mobile)

    @property
    def mobile_url(self) -> str:
        """The URL of a page that shows the device's screen, valid for half an hour at least.

        `box.mobile.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return run(type(self.twin).__name__, cast("MobileSandboxAsync", self.twin).mobile_url)
