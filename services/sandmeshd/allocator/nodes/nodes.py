"""The drivers of the mesh as nodes: what each can take, and templates made ready before their first use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    CapabilityMissing,
    DeadlineExceeded,
    InvalidArgument,
    RuntimeUnavailable,
    SandmeshError,
    TemplateNotFound,
)
from sandmeshd.allocator.background import Background
from sandmeshd.allocator.nodes.circuit_breaker import Breaker
from sandmeshd.allocator.records.bounds import bounded
from sandmeshd.allocator.records.ledger import NodeWant, Want
from sandmeshd.allocator.records.spec import normalized, spec_key
from sandmeshd.allocator.settings import AllocatorSettings

log = structlog.get_logger()

_INFO_SECONDS = 5.0
_SILENCES = 2


class DriverClient(Protocol):
    """What the allocator uses of a driver, local or remote."""

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Say what the driver is and can do."""
        ...

    def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or fetch what a template is made of, saying how far it is."""
        ...

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Make a sandbox; return when its agent listens."""
        ...

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox and all that it left."""
        ...

    def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        ...

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token."""
        ...

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox of a mesh that has left anything."""
        ...

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        ...

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Let a frozen sandbox run."""
        ...

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Give the last words of agent and runtime."""
        ...

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home under one id."""
        ...

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the snapshots of a mesh."""
        ...

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot."""
        ...


@dataclass
class Node:
    """One running driver, and what it last said of itself; None until it has answered."""

    name: str
    client: DriverClient
    breaker: Breaker
    owners: dict[str, str]
    """Which driver each node id belongs to: whoever said it first."""
    info: pb.GetInfoResponse | None = None
    silences: int = 0
    """How many times in a row it did not answer."""
    failure: str = ""
    """Why it did not."""

    @property
    def node_id(self) -> str:
        """Its id; empty until it has answered."""
        return self.info.node_id if self.info else ""

    @property
    def is_healthy(self) -> bool:
        """Whether it answered lately."""
        return self.info is not None and self.silences < _SILENCES

    async def refresh(self) -> pb.GetInfoResponse:
        """Ask the driver what it is and can do.

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
        except SandmeshError as error:
            self._silent(error.message)
            raise
        if self.silences >= _SILENCES:
            log.info("a node is back in the rotation", node=self.name)
        self.silences, self.failure = 0, ""
        return self.info

    def _silent(self, failure: str) -> None:
        self.silences += 1
        self.failure = failure
        if self.info is not None and self.silences == _SILENCES:
            log.warning("a node leaves the rotation", node=self.name, error=failure)

    def _own(self, info: pb.GetInfoResponse) -> pb.GetInfoResponse:
        # Records name nodes: of two drivers of one name each would lose the sandboxes of the other.
        first = self.owners.setdefault(info.node_id, self.name)
        if first != self.name:
            fix = "start one of them with another --node-id"
            message = f"the drivers {first} and {self.name} both say that they are node {info.node_id}: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix})
        if self.info is not None and self.info.node_id != info.node_id:
            self.owners.pop(self.info.node_id, None)
        return info

    def template(self, name: str) -> pb.TemplateInfo | None:
        """Give what is known of a template."""
        if self.info is None:
            return None
        return next((template for template in self.info.templates if template.name == name), None)


@dataclass(frozen=True)
class Placement:
    """Where a sandbox of a spec can go: the spec in its one form, and what the store has to know."""

    spec: sandbox_pb2.SandboxSpec
    want: Want


class Nodes:
    """All nodes of the mesh."""

    def __init__(
        self, drivers: Mapping[str, DriverClient], settings: AllocatorSettings, background: Background
    ) -> None:
        owners: dict[str, str] = {}
        self._nodes = [
            Node(name, client, Breaker(settings.breaker_failures, settings.breaker_seconds), owners)
            for name, client in drivers.items()
        ]
        self._settings = settings
        self._background = background
        self._preparing: dict[tuple[str, str], asyncio.Task[SandmeshError | None]] = {}
        self._steps: dict[tuple[str, str], str] = {}

    @property
    def all(self) -> Sequence[Node]:
        """Every node, also those that have not answered yet."""
        return tuple(self._nodes)

    def by_id(self, node_id: str) -> Node | None:
        """Give a node by the id that its driver states."""
        return next((node for node in self._nodes if node.info and node.info.node_id == node_id), None)

    def keeping(self, wanted: Sequence[NodeWant]) -> list[NodeWant]:
        """Give those of some nodes that save and restore workspaces."""
        keeping = {node.node_id for node in self._nodes if node.info is not None and node.info.keeps_workspaces}
        return [one for one in wanted if one.id in keeping]

    def is_silent(self, node_id: str) -> bool:
        """Say whether a node is known and did not answer lately."""
        node = self.by_id(node_id)
        return node is not None and not node.is_healthy

    def healthy_ids(self) -> list[str]:
        """Give the ids of the nodes that answered lately."""
        return [node.node_id for node in self._nodes if node.is_healthy]

    async def look_again(self) -> None:
        """Ask every node for its templates: they changed."""
        await asyncio.gather(*(node.refresh() for node in self._nodes), return_exceptions=True)

    async def greet(self) -> None:
        """Ask every node what it is; one that does not answer now is asked again when it is needed."""
        answers = await asyncio.gather(*(node.refresh() for node in self._nodes), return_exceptions=True)
        for node, answer in zip(self._nodes, answers, strict=True):
            if isinstance(answer, BaseException):
                log.warning("a driver does not answer", node=node.name, error=str(answer))

    async def place(self, spec: sandbox_pb2.SandboxSpec, caller: str = "") -> Placement:
        """Say where a sandbox can go, with its template made ready there; it counts against the caller's cap.

        Raises:
            TemplateNotFound: No node of the driver knows the template.
            InvalidArgument: There is no such driver.
            CapabilityMissing: No node has so many ports.
            RuntimeUnavailable, TemplateBuildFailed: As the driver says.
        """
        nodes = await self._of_driver(spec.driver)
        nodes = await self._knowing(nodes, spec.template)
        nodes = _with_workspaces(_with_ports(nodes, spec.port_count), spec.workspace_dir)
        nodes = _alike(_in_rotation(await self._prepared(nodes, spec.template)), spec.template)
        driver = nodes[0].info.name if nodes[0].info else ""
        template = nodes[0].template(spec.template)
        full = normalized(bounded(spec, template), driver, _default_network(nodes[0], template))
        key = spec_key(full, template.generation if template else "")
        return Placement(full, self._want(full, key, nodes, caller))

    def _want(self, spec: sandbox_pb2.SandboxSpec, key: str, nodes: Sequence[Node], caller: str) -> Want:
        own = self._settings.caller_capacities.get(caller, self._settings.caller_capacity)
        return Want(
            template=spec.template,
            spec_key=key,
            ports=spec.port_count,
            limit=self._settings.capacity,
            template_limit=self._settings.template_capacities.get(spec.template, 0),
            nodes=[self.wanted(node.info) for node in nodes if node.info],
            caller=caller,
            caller_limit=own if caller else 0,
        )

    def wanted(self, info: pb.GetInfoResponse) -> NodeWant:
        """Give a node as a request may want it."""
        limit = self._settings.node_capacities.get(info.node_id, self._settings.node_capacity)
        own = int(info.capabilities.agent_port)
        return NodeWant(info.node_id, info.name, limit, info.port_range.first, info.port_range.last, own)

    async def _of_driver(self, driver: str) -> list[Node]:
        await self._ask_silent()
        known = [node for node in self._nodes if node.is_healthy]
        wanted = driver or self._settings.default_driver or (known[0].info.name if known and known[0].info else "")
        found = [node for node in known if node.info and node.info.name == wanted]
        if not found:
            names = ", ".join(sorted({node.info.name for node in known if node.info}))
            message = f"the mesh has no driver {wanted!r}; it has: {names}"
            raise InvalidArgument(message, {"field": "spec.driver", "known": names})
        return found

    async def _ask_silent(self) -> None:
        silent = [node for node in self._nodes if not node.is_healthy]
        if not silent:
            return
        answers = await asyncio.gather(*(node.refresh() for node in silent), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failures) == len(self._nodes):
            raise failures[0] if failures else RuntimeUnavailable("the mesh has no driver", {"fix": "configure one"})

    async def _knowing(self, nodes: Sequence[Node], template: str) -> list[Node]:
        found = [node for node in nodes if node.template(template)]
        if not found:
            await asyncio.gather(*(node.refresh() for node in nodes))
            found = [node for node in nodes if node.template(template)]
        if not found:
            known = ", ".join(sorted({t.name for node in nodes if node.info for t in node.info.templates}))
            raise TemplateNotFound(f"no template {template!r}; there are: {known}", {"known": known})
        return found

    async def _prepared(self, nodes: Sequence[Node], template: str) -> list[Node]:
        bare = [node for node in nodes if not _is_prepared(node, template)]
        starting = [self._prepare_once(node, template) for node in bare]
        if len(bare) == len(nodes):
            await self._outcome(starting[0])
        return [node for node in nodes if _is_prepared(node, template)] or [nodes[0]]

    async def prepare(self, node: Node, template: str) -> None:
        """Make a template ready on a node; callers at the same time share one run.

        Raises:
            TemplateNotFound, TemplateBuildFailed, RuntimeUnavailable: As the driver says.
        """
        await self._outcome(self._prepare_once(node, template))

    async def _outcome(self, task: asyncio.Task[SandmeshError | None]) -> None:
        # A caller that goes away does not end the build: others wait for it, and the next one would need it.
        error = await asyncio.shield(task)
        if error is not None:
            raise error

    def _prepare_once(self, node: Node, template: str) -> asyncio.Task[SandmeshError | None]:
        key = (node.name, template)
        task = self._preparing.get(key)
        if task is None:
            task = self._background.attempt(self._prepare(node, template))
            self._preparing[key], self._steps[key] = task, "begun"
            task.add_done_callback(lambda _: self._prepared_by(key))
        return task

    def _prepared_by(self, key: tuple[str, str]) -> None:
        self._preparing.pop(key, None)
        self._steps.pop(key, None)

    async def _prepare(self, node: Node, template: str) -> SandmeshError | None:
        try:
            async for step in node.client.prepare_template(pb.PrepareTemplateRequest(template=template)):
                self._steps[node.name, template] = step.message
                log.info("preparing a template", node=node.name, template=template, step=step.message, done=step.done)
            await node.refresh()
        except SandmeshError as error:
            return error
        return None

    def preparations(self) -> list[sandbox_pb2.Preparation]:
        """Say what is being made ready, and how far it is."""
        ids = {node.name: node.node_id or node.name for node in self.all}
        return [
            sandbox_pb2.Preparation(template=template, node_id=ids.get(name, name), step=step)
            for (name, template), step in self._steps.items()
        ]

    def late(self, template: str) -> DeadlineExceeded:
        """Give what a caller is told whose time was over before there was a place: how far its template is."""
        steps = [step for (_, name), step in self._steps.items() if name == template]
        if not steps:
            return DeadlineExceeded("no node answered in time", changed=False)
        message = (
            f"the template {template} is being made ready ({steps[0]}), which goes on: ask again, or give it longer"
        )
        return DeadlineExceeded(message, {"template": template, "step": steps[0]}, changed=False)


def _in_rotation(nodes: Sequence[Node]) -> list[Node]:
    # A breaker chooses among nodes; where all failed, they are tried all the same, with the pauses of each start.
    return [node for node in nodes if not node.breaker.is_open] or list(nodes)


def _alike(nodes: Sequence[Node], template: str) -> list[Node]:
    # Nodes that have another version of the template, as in a rolling update, are no place for the same request.
    of_each = {node.name: found.generation for node in nodes if (found := node.template(template))}
    return [node for node in nodes if of_each.get(node.name) == of_each.get(nodes[0].name)]


def _is_prepared(node: Node, template: str) -> bool:
    found = node.template(template)
    return found is not None and found.prepared


def _default_network(node: Node, template: pb.TemplateInfo | None) -> sandbox_pb2.NetworkGrant | None:
    # A default is applied where it can be; stated to a driver that cannot, it would be a requirement.
    able = node.info.capabilities.network_modes if node.info else ()
    return template.network if template and template.network.mode in able else None


def _with_ports(nodes: Sequence[Node], count: int) -> list[Node]:
    found = [node for node in nodes if node.info and _askable(node.info) >= count]
    if not found:
        message = f"no node has {count} ports to lease; ask for fewer, or give the driver a range of ports"
        raise CapabilityMissing(message, {"needs": "host_ports"})
    return found


def _with_workspaces(nodes: list[Node], workspace_dir: str) -> list[Node]:
    if not workspace_dir:
        return nodes
    found = [node for node in nodes if node.info and node.info.capabilities.workspace_dir]
    if not found:
        message = "no node takes a directory of its host as a workspace: drop workspace_dir or choose another driver"
        raise CapabilityMissing(message, {"needs": "workspace_dir"})
    return found


def _askable(info: pb.GetInfoResponse) -> int:
    ports = info.port_range
    return ports.last - ports.first + 1 - info.capabilities.agent_port if ports.last else 0
