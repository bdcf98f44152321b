"""The browser of a sandbox for programs: `box.browser`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandmesh._client.sync import Facade, blocking, run
from sandmesh._tools import Tool, build
from sandmesh._tools.desktop import StartRecording
from sandmesh.api.port.v1 import port_pb2 as pb
from sandmesh.results import ToolResult
from sandmesh.sandbox.ports import ExposedPortAsync, PortTarget, expose
from sandmesh.sandbox.screen.recorder import Recording, RecordingAsync, Video
from sandmesh.sandbox.sync_handles import ExposedPort


class BrowserAsync:
    """The browser of a sandbox, which its tools use too; it starts with its first use."""

    def __init__(self, target: Callable[[], PortTarget], call: Callable[[Tool], Awaitable[ToolResult]]) -> None:
        self._target = target
        self._call = call

    async def cdp_url(self, *, ttl: float = 3600.0) -> str:
        """Return a WebSocket URL of the browser's DevTools protocol, valid for `ttl` seconds (1 to 30 days).

        Playwright's `connect_over_cdp`, Puppeteer's `browserWSEndpoint` and others take it. Its holder controls the
        browser. It stays the same when the browser ends and starts again. `expose` returns one that can be revoked.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no browser.
        """
        url = (await self.expose(ttl=ttl)).url
        return f"ws{url.removeprefix('http')}"

    async def url(self, *, readonly: bool = False, ttl: float = 3600.0) -> str:
        """Return the URL of a page that shows the browser's current page, valid for `ttl` seconds (1 to 30 days).

        Anyone with the URL sees the page in any browser and, unless it is `readonly`, can take over from the agent.
        `box.list_exposed()` lists those there are and revokes them.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no browser.
        """
        kind = pb.EXPOSURE_KIND_BROWSER_READONLY if readonly else pb.EXPOSURE_KIND_BROWSER
        return (await expose(self._target(), ttl, pb.ExposePortRequest(kind=kind))).url

    async def expose(self, *, ttl: float = 3600.0) -> ExposedPortAsync:
        """Expose the browser's DevTools protocol, for `ttl` seconds; the result has the URL and revokes it.

        The URL is an http one: below it `json/version` and `json/list` are as a local browser has them.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no browser.
        """
        return await expose(self._target(), ttl, pb.ExposePortRequest(kind=pb.EXPOSURE_KIND_DEVTOOLS))

    def record(
        self,
        folder: str = "",
        *,
        video: Video = "mp4",
        fps: int = 10,
        max_seconds: float = 3600.0,
        max_bytes: int = 256 << 20,
    ) -> RecordingAsync:
        """Return a recording to start, or to enter as a block: a video of the page, and a trace of the calls.

        It goes to a new folder of the workspace, which `sandmesh replay` shows as a page, and goes on when the browser
        dies. The video ends by itself after `max_seconds`; of `max_bytes` a quarter is for the trace.

        Raises:
            InvalidArgument: A value is out of its range.
        """
        return RecordingAsync(self._call, build(StartRecording, folder, video, fps, max_seconds, max_bytes))


class Browser(Facade):
    """The browser of a sandbox, which its tools use too; it starts with its first use."""

    def __init__(self, twin: BrowserAsync) -> None:
        self.twin: BrowserAsync = twin

    cdp_url = blocking(BrowserAsync.cdp_url)
    url = blocking(BrowserAsync.url)

    def expose(self, *, ttl: float = 3600.0) -> ExposedPort:
        """Expose the browser's DevTools protocol, for `ttl` seconds; the result has the URL and revokes it.

        The URL is an http one: below it `json/version` and `json/list` are as a local browser has them.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no browser.
        """
        return ExposedPort(run(type(self.twin).__name__, self.twin.expose(ttl=ttl)))

    def record(
        self,
        folder: str = "",
        *,
        video: Video = "mp4",
        fps: int = 10,
        max_seconds: float = 3600.0,
        max_bytes: int = 256 << 20,
    ) -> Recording:
        """Return a recording to start, or to enter as a block: a video of the page, and a trace of the calls.

        It goes to a new folder of the workspace, which `sandmesh replay` shows as a page, and goes on when the browser
        dies. The video ends by itself after `max_seconds`; of `max_bytes` a quarter is for the trace.

        Raises:
            InvalidArgument: A value is out of its range.
        """
        return Recording(self.twin.record(folder, video=video, fps=fps, max_seconds=max_seconds, max_bytes=max_bytes))
