"""A driver of the mesh as a node, with its health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import MeshUnavailable, RuntimeUnavailable, SandmeshError
from sandmeshd.allocator.nodes.circuit_breaker import CircuitBreaker
from sandmeshd.contracts.driver import Driver

log = structlog.get_logger()

_INFO_SECONDS = 5.0
_SILENCES = 2


def silent_driver(name: str, error: MeshUnavailable) -> MeshUnavailable:
    """Return the error of a driver that does not answer, in words for a client of the mesh, which does answer."""
    fix = "start its driver, or kill it first if it hangs (sandmesh doctor --mesh says which nodes answer)"
    message = f"driver {name} does not answer ({error.message}): {fix}"
    return MeshUnavailable(message, {"driver": name, "fix": fix}, changed=error.changed)


@dataclass
class Node:
    """A running driver, and the info that it last reported; None until its first response."""

    name: str
    client: Driver
    breaker: CircuitBreaker
    owners: dict[str, str]
    """The driver that each node id belongs to: the first that reported it."""
    info: pb.GetInfoResponse | None = None
    silences: int = 0
    """How many requests in a row it did not answer."""
    failure: str = ""
    """Why it did not answer."""
    silent_since: float = 0.0
    """When the first of those requests was, by the loop's clock."""
    _indexed: pb.GetInfoResponse | None = None
    _templates: dict[str, pb.TemplateInfo] = field(default_factory=dict[str, pb.TemplateInfo])
    """Those of `_indexed`, by name: a claim looks its template up a dozen times."""

    @property
    def node_id(self) -> str:
        """Its id; empty until its first response."""
        return self.info.node_id if self.info else ""

    @property
    def is_healthy(self) -> bool:
        """Whether it answered recently."""
        return self.info is not None and self.silences < _SILENCES

    @property
    def keeps_workspaces(self) -> bool:
        """Whether it saves and restores workspaces."""
        return self.info is not None and self.info.keeps_workspaces

    async def refresh(self) -> pb.GetInfoResponse:
        """Read what the driver is and can do.

        Raises:
            SandmeshError: It cannot be reached, its runtime does not work, or another driver has its node id.
        """
        try:
            async with asyncio.timeout(_INFO_SECONDS):
                self.info = self._own(await self.client.get_info(pb.GetInfoRequest()))
        except TimeoutError:
            message = f"driver {self.name} does not answer within {_INFO_SECONDS:g} s"
            self._silent(message)
            raise RuntimeUnavailable(message, {"fix": f"look at the log of driver {self.name}"}) from None
        except MeshUnavailable as error:
            silent = silent_driver(self.name, error)
            self._silent(silent.message)
            raise silent from None
        except SandmeshError as error:
            self._silent(error.message)
            raise
        if self.silences >= _SILENCES:
            log.info("a node is back in the rotation", node=self.name)
        self.silences, self.failure = 0, ""
        return self.info

    def _silent(self, failure: str) -> None:
        if not self.silences:
            self.silent_since = asyncio.get_running_loop().time()
        self.silences += 1
        self.failure = failure
        if self.info is not None and self.silences == _SILENCES:
            log.warning("a node leaves the rotation", node=self.name, error=failure)

    def _own(self, info: pb.GetInfoResponse) -> pb.GetInfoResponse:
        # Records name nodes: of two drivers of one name each would lose the sandboxes of the other.
        first = self.owners.setdefault(info.node_id, self.name)
        if first != self.name:
            fix = "start one of them with another --node-id"
            message = f"the drivers {first} and {self.name} both report that they are node {info.node_id}: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix})
        if self.info is not None and self.info.node_id != info.node_id:
            self.owners.pop(self.info.node_id, None)
        return info

    def template(self, name: str) -> pb.TemplateInfo | None:
        """Return what is known of a template."""
        if self._indexed is not self.info:
            self._indexed = self.info
            self._templates = {template.name: template for template in self.info.templates} if self.info else {}
        return self._templates.get(name)
