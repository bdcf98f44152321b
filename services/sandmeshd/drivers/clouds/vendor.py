"""What the driver of a cloud asks of its vendor: each vendor's folder beside this module has one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.clouds.sessions import RentedSession
from sandmeshd.templates import Template


class Vendor(ABC):
    """One vendor's instances in one region, for the sandboxes of one mesh.

    Methods raise the mesh's errors: RuntimeUnavailable where the vendor does not answer or refuses the keys,
    PoolExhausted where it has no room.
    """

    product: str
    """The name of what is rented, as its users know it."""

    where: str
    """The product's version and region, as the driver reports its runtime."""

    walls: str
    """What is known of an instance's own way out."""

    @abstractmethod
    async def check(self) -> None:
        """Check that the vendor answers, and takes the keys."""

    @abstractmethod
    def preparing(self, template: Template) -> AsyncGenerator[str]:
        """Make what a template's sandboxes share, and yield what is done."""

    @abstractmethod
    def planned(
        self, request: pb.CreateSandboxRequest, template: Template
    ) -> AbstractAsyncContextManager[RentedSession]:
        """Plan a sandbox's session; what it shares with others exists while the block runs.

        Raises:
            CapabilityMissing: The template has what only other drivers know.
        """

    @abstractmethod
    async def begin(self, session: RentedSession) -> None:
        """Begin a session, which is billed from then on, and note in its sandbox where its agent will be reached.

        Raises:
            SandboxStartFailed: The vendor cannot start its instance; `facts["detail"]` has its words.
        """

    @abstractmethod
    async def end(self, session: RentedSession) -> None:
        """End a session, with whatever was made only for it; from then on nothing of it is billed."""

    @abstractmethod
    async def why_ended(self, session: RentedSession) -> str:
        """Return how a session ended, empty while it lives."""

    @abstractmethod
    def left(self) -> AsyncGenerator[RentedSession]:
        """Yield every session of the mesh that earlier drivers left.

        Each has its sandbox's id, empty where that is not known, and where its agent is reached; those that ended have
        ended. What no sandbox uses any more is removed once all were asked for.
        """

    @abstractmethod
    async def clear(self) -> None:
        """Remove what sessions shared, once all of the mesh have ended."""
