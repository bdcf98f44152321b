"""The Android device of a sandbox for people: `box.mobile`."""

from __future__ import annotations

from collections.abc import Callable

from sandmesh._client.sync import Facade, blocking
from sandmesh.api.port.v1 import port_pb2 as pb
from sandmesh.sandbox.ports import PortTarget, expose


class MobileAsync:
    """The device that a sandbox holds."""

    def __init__(self, target: Callable[[], PortTarget]) -> None:
        self._target = target

    async def url(self, *, readonly: bool = False, ttl: float = 3600.0) -> str:
        """Return the URL of a page that shows the device's screen, valid for `ttl` seconds (1 to 30 days).

        Anyone with the URL sees the screen in any browser and, unless it is `readonly`, can take over from the agent.
        `box.list_exposed()` lists those there are and revokes them.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no device.
        """
        kind = pb.EXPOSURE_KIND_MOBILE_READONLY if readonly else pb.EXPOSURE_KIND_MOBILE
        return (await expose(self._target(), ttl, pb.ExposePortRequest(kind=kind))).url


class Mobile(Facade):
    """The device that a sandbox holds."""

    def __init__(self, twin: MobileAsync) -> None:
        self.twin: MobileAsync = twin

    url = blocking(MobileAsync.url)
