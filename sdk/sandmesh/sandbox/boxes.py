"""Sandboxes for programs with an event loop. The sync twins in `sandmesh.sandbox.sync` wrap these."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Unpack

from sandmesh._calls.call import MAX_ARGUMENTS, Order, too_large
from sandmesh._client.messages import check_options, read_name, read_seconds, write_batch, write_spec
from sandmesh.api.port.v1 import port_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.inputs import Options
from sandmesh.replies import REPLY_CHARACTERS, read_reply_characters
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.handle import Attachment, BoxConfig
from sandmesh.sandbox.lifecycle import LifecycleAsync
from sandmesh.sandbox.mcp import McpServersAsync
from sandmesh.sandbox.ports import PortsAsync, view_url
from sandmesh.sandbox.session.lease import Lifetimes
from sandmesh.sandbox.snapshots import SnapshotsAsync
from sandmesh.sandbox.tools.tool_calls import ToolCallsAsync
from sandmesh.sandbox.tools.tool_groups import (
    BrowserTools,
    ComputerUseTools,
    FilesystemTools,
    GenericTools,
    GitTools,
    MobileTools,
)
from sandmesh.sandbox.tools.toolkit import ToolkitAsync
from sandmesh.shared.fork_lock import fork_lock

if TYPE_CHECKING:
    from sandmesh._files.api import FilesAsync
    from sandmesh.results import FileDifference
    from sandmesh.sandbox.images.image import Image
    from sandmesh.sandbox.kernels import Forks, KernelsAsync
    from sandmesh.sandbox.network import NetworkAsync, SandboxSecretsAsync
    from sandmesh.sandbox.processes import ProcessesAsync
    from sandmesh.sandbox.screen.browser import BrowserAsync
    from sandmesh.sandbox.screen.desktop import DesktopAsync
    from sandmesh.sandbox.screen.mobile import MobileAsync
    from sandmesh.sandbox.session.info import BoxSession

# Kernels, processes and files are imported at their first use: most programs use few of them.


def _described(image: object) -> Image | None:
    """Return an image that this program describes, None for a name and for what is neither."""
    if image is None or isinstance(image, str):
        return None
    with fork_lock:
        from sandmesh.sandbox.images.image import Image  # noqa: PLC0415 - see above

    return image if isinstance(image, Image) else None


_Base: TypeAlias = "tuple[SandboxAsync, BoxConfig, Attachment]"


class SandboxAsync(LifecycleAsync, SnapshotsAsync, McpServersAsync, PortsAsync, ToolCallsAsync):
    """One sandbox of any type: `async with SandboxAsync(sandbox_type="base") as box: ...`.

    Without `sandbox_id` it creates a sandbox and releases it when it is closed; with one it attaches to that sandbox,
    which stays. `timeout` is seconds for each operation. Without `base_url` the mesh is the one at SANDMESH_ADDRESS,
    else this user's local one, else a private one that ends with this process.
    """

    default_type: ClassVar[str] = "base"

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
        check_options(options)
        name = sandbox_type or class_registry().type_of(type(self)) or self.default_type
        template = read_name("sandbox_type", name)
        reply_characters = options.get("reply_characters")
        lifetimes = Lifetimes(
            options.get("ttl"), options.get("idle_timeout"), options.get("on_idle"), options.get("auto_resume")
        )
        lifetimes.check()
        described = _described(options.get("image"))
        config = BoxConfig(
            sandbox_id=None if sandbox_id is None else read_name("sandbox_id", sandbox_id),
            timeout=read_seconds("timeout", timeout),
            base_url=base_url,
            bearer_token=bearer_token,
            spec=write_spec(template, options if described is None else {**options, "image": None}),
            lifetimes=lifetimes,
            ca_cert=options.get("ca_cert"),
            batch=write_batch(options),
            reply_characters=REPLY_CHARACTERS if reply_characters is None else read_reply_characters(reply_characters),
            image=described,
            trace_processes=bool(options.get("trace_processes")),
        )
        super().__init__(template, config)
        self._base: Callable[[], _Base] | None = None
        self.session: BoxSession | None = None
        """Its session, where `SandboxService.connect` returned it: its ids, and whether the sandbox is new."""

    async def fork(self, count: int = 1, timeout: float = 120, *, kernels: bool | None = None) -> Forks[Self]:
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
            from sandmesh.sandbox.session.forks import ForkOrder, fork  # noqa: PLC0415 - see above

        order = ForkOrder(count, timeout, kernels)
        return await fork(self, self._copied, self._config, self._attached(), order)

    def overlay(self) -> Self:
        """Return a box of this class for an overlay of this one's files, not yet opened.

        It is another sandbox, which begins with a copy of workspace and home: what is done there leaves this one
        unchanged. `branch.diff()` returns its changes of the workspace, `branch.commit()` applies them to this one.
        What is not committed is discarded when it is closed, when its lease ends, and by `branch.discard()`.

        Starting it raises what `fork` raises.
        """
        self._attached()
        other = self._copied(replace(self._config, sandbox_id=None))
        vars(other)["_base"] = lambda: (self, self._config, self._attached())
        return other

    async def _attach(self) -> Attachment:
        base = self._base
        if base is None:
            return await super()._attach()
        with fork_lock:
            from sandmesh.sandbox.session.overlays import attach_overlay  # noqa: PLC0415 - see above

        return await attach_overlay(*base())

    async def diff(self) -> list[FileDifference]:
        """Return what an overlay's workspace has added, changed and removed, by path. Times of files do not count.

        Raises:
            WrongState: It is not an overlay.
        """
        with fork_lock:
            from sandmesh.sandbox.session.overlays import read_changes  # noqa: PLC0415 - see above

        return (await read_changes(self._attached(), self._config.timeout))[1]

    async def commit(self, *, force: bool = False) -> list[FileDifference]:
        """Apply the changes of an overlay's workspace to the sandbox that it was made of, all or none; return them.

        Nothing runs there while they are applied. The overlay stays, and changes count from here on.

        Raises:
            WrongState: It is not an overlay, or the other sandbox has changed in the same places since: fact `paths`.
                With `force` these are replaced.
            SandboxNotFound: The other sandbox is gone.
            OSError: A change cannot be applied there, such as for want of space.
        """
        with fork_lock:
            from sandmesh.sandbox.session.overlays import commit_changes  # noqa: PLC0415 - see above

        return await commit_changes(self._attached(), self._config.timeout, force=force)

    async def discard(self) -> None:
        """Discard an overlay with what was not committed: its sandbox is deleted, and this box closed.

        Raises:
            WrongState: It is not an overlay.
        """
        attachment = self._attached()
        with fork_lock:
            from sandmesh.sandbox.session.overlays import read_changes  # noqa: PLC0415 - see above

        await read_changes(attachment, self._config.timeout, packed=True)
        if attachment.owned is None:
            request = sandbox_pb2.ReleaseSandboxRequest(
                sandbox_id=self.sandbox_id, fencing_token=attachment.record.lease.fencing_token
            )
            await attachment.usable().ask(lambda stubs: stubs.sandboxes.ReleaseSandbox, request, self._config.timeout)
        await self.close()

    def _copied(self, config: BoxConfig) -> Self:
        """Return a box of this class that is not started, with another configuration."""
        other = copy.copy(self)
        vars(other).update(_config=config, _attachment=None, _closed=False, _base=None, session=None)
        return other

    @property
    def kernels(self) -> KernelsAsync:
        """The sandbox's kernels: create, get, list."""
        with fork_lock:
            from sandmesh.sandbox.kernels import KernelsAsync  # noqa: PLC0415 - see above

        return KernelsAsync(self._attached, self._config.timeout)

    @property
    def processes(self) -> ProcessesAsync:
        """The sandbox's processes: start, list, attach."""
        with fork_lock:
            from sandmesh.sandbox.processes import ProcessesAsync  # noqa: PLC0415 - see above

        return ProcessesAsync(self._attached, self._config.timeout)

    @property
    def network(self) -> NetworkAsync:
        """What the sandbox may reach while it runs: show, allow, deny, set."""
        with fork_lock:
            from sandmesh.sandbox.network import NetworkAsync  # noqa: PLC0415 - see above

        return NetworkAsync(self.sandbox_id, lambda: self._attached().usable(), self._config.timeout)

    @property
    def secrets(self) -> SandboxSecretsAsync:
        """The secrets of the sandbox's requests: list, set, remove."""
        with fork_lock:
            from sandmesh.sandbox.network import SandboxSecretsAsync  # noqa: PLC0415 - see above

        return SandboxSecretsAsync(self.sandbox_id, lambda: self._attached().usable(), self._config.timeout)

    @property
    def fs(self) -> FilesAsync:
        """The sandbox's files."""
        with fork_lock:
            from sandmesh._files.api import FilesAsync  # noqa: PLC0415 - see above

        return FilesAsync(self._file_order, lambda: self._attached().usable())

    @property
    def reply_characters(self) -> int:
        """The most characters of text that a model is sent for one call of this box."""
        return self._config.reply_characters

    async def as_tools(self, form: str = "openai", *, reply_characters: int | None = None) -> ToolkitAsync:
        """Return all tools in a model's format, with a dispatcher for its calls.

        The format is "openai", "openai-responses", "anthropic" or "mcp"; names are unique and fit for all vendors. A
        reply has at most `reply_characters` of text, None: the box's.

        Raises:
            InvalidArgument: The format does not exist, or the bound is not a whole number above 0.
        """
        bound = self.reply_characters if reply_characters is None else read_reply_characters(reply_characters)
        return ToolkitAsync(self, form, await self.list_tools(), bound)

    def _file_order(self, tool: str, arguments: bytes) -> Order:
        record = self._attached().record
        if len(arguments) > MAX_ARGUMENTS:
            raise too_large(tool, arguments)
        return Order(record.sandbox_id, record.lease.fencing_token, tool, arguments, self._config.timeout)


class BaseSandboxAsync(SandboxAsync, GenericTools, GitTools):
    """A sandbox with a Python kernel, a shell and the history of its workspace."""


class FilesystemSandboxAsync(BaseSandboxAsync, FilesystemTools):
    """A sandbox with a Python kernel, a shell and tools for the files of its workspace."""

    default_type: ClassVar[str] = "filesystem"

    @property
    def desktop(self) -> DesktopAsync:
        """The desktop of a sandbox whose template has one, as "gui" and "desktop" have: screen, windows, clipboard."""
        with fork_lock:
            from sandmesh.sandbox.screen.desktop import DesktopAsync  # noqa: PLC0415 - see above

        return DesktopAsync(self.call, self._port_target)

    @property
    def desktop_url(self) -> Coroutine[Any, Any, str]:
        """The URL of a page that shows the desktop, valid for half an hour at least; CapabilityMissing without one.

        `box.desktop.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return view_url(self._port_target(), port_pb2.EXPOSURE_KIND_DESKTOP)


class BrowserSandboxAsync(BaseSandboxAsync, BrowserTools):
    """A sandbox with a browser, beside a Python kernel and a shell."""

    default_type: ClassVar[str] = "browser"

    @property
    def browser(self) -> BrowserAsync:
        """The sandbox's browser, for programs that speak its DevTools protocol."""
        with fork_lock:
            from sandmesh.sandbox.screen.browser import BrowserAsync  # noqa: PLC0415 - see above

        return BrowserAsync(self._port_target, self.call)

    @property
    def browser_url(self) -> Coroutine[Any, Any, str]:
        """The URL of a page that shows what the browser shows, valid for half an hour at least.

        `box.browser.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return view_url(self._port_target(), port_pb2.EXPOSURE_KIND_BROWSER)

    @property
    def desktop_url(self) -> Coroutine[Any, Any, str]:
        """The same as `browser_url`: the browser is all that there is to see."""
        return self.browser_url


class GuiSandboxAsync(FilesystemSandboxAsync, ComputerUseTools):
    """A sandbox with a desktop: a screen, a mouse and a keyboard, besides the tools of a filesystem sandbox."""

    default_type: ClassVar[str] = "gui"


class MobileSandboxAsync(BaseSandboxAsync, MobileTools):
    """A sandbox that holds an Android device, beside a Python kernel and a shell, where `adb` reaches it too."""

    default_type: ClassVar[str] = "mobile"

    @property
    def mobile(self) -> MobileAsync:
        """The sandbox's device, for people who watch it."""
        with fork_lock:
            from sandmesh.sandbox.screen.mobile import MobileAsync  # noqa: PLC0415 - see above

        return MobileAsync(self._port_target)

    @property
    def mobile_url(self) -> Coroutine[Any, Any, str]:
        """The URL of a page that shows the device's screen, valid for half an hour at least.

        `box.mobile.url()` makes one for another time, or to watch. Async classes have it awaited.
        """
        return view_url(self._port_target(), port_pb2.EXPOSURE_KIND_MOBILE)
