"""The nodes of the mesh, and where among them a sandbox can go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    CapabilityMissing,
    InvalidArgument,
    MeshUnavailable,
    RuntimeUnavailable,
    SandmeshError,
    TemplateNotFound,
)
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.nodes.circuit_breaker import CircuitBreaker
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.node_sample import draw
from sandmeshd.allocator.nodes.template_preparations import TemplatePreparations
from sandmeshd.allocator.records.record_store import NodeWant, Want
from sandmeshd.allocator.records.secret_reach import check_secret_hosts
from sandmeshd.allocator.records.spec import normalized, spec_key
from sandmeshd.allocator.records.template_limits import apply_template_limits
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.contracts.driver import Driver

_DEVICE_TOOLS = "mobile"
"""The group of tools of templates whose sandboxes hold a device."""

_RETURN_POLL_SECONDS = 0.25

log = structlog.get_logger()


@dataclass(frozen=True)
class Placement:
    """Where a sandbox can go: its canonical spec, and what the store has to know."""

    spec: sandbox_pb2.SandboxSpec
    want: Want


class Nodes:
    """The nodes of the mesh."""

    def __init__(self, drivers: Mapping[str, Driver], settings: AllocatorSettings, tasks: BackgroundTasks) -> None:
        self._owners: dict[str, str] = {}
        self._nodes = [
            Node(name, client, CircuitBreaker(settings.breaker_failures, settings.breaker_seconds), self._owners)
            for name, client in drivers.items()
        ]
        self._by_name = {node.name: node for node in self._nodes}
        self._settings = settings
        self.preparations = TemplatePreparations(tasks, settings.template_retry_seconds)

    @property
    def all(self) -> Sequence[Node]:
        """Every node, those without a response yet included."""
        return tuple(self._nodes)

    def by_id(self, node_id: str) -> Node | None:
        """Return a node by the id that its driver reports."""
        node = self._by_name.get(self._owners.get(node_id, ""))
        return node if node and node_id and node.node_id == node_id else None

    def keeping(self, wanted: Sequence[NodeWant]) -> list[NodeWant]:
        """Return those of `wanted` that save and restore workspaces."""
        return [node_id for node_id in wanted if (node := self.by_id(node_id.id)) and node.keeps_workspaces]

    def keeping_profiles(self, wanted: Sequence[NodeWant], template: str) -> list[NodeWant]:
        """Return those of `wanted` that save and restore profiles of browsers.

        Raises:
            InvalidArgument: Sandboxes of the template have no browser.
            CapabilityMissing: No node has a storage.
        """
        found = [node.template(template) for node in self._nodes if node.node_id in {one.id for one in wanted}]
        if not any(one is not None and "browser" in one.tool_groups for one in found):
            message = f"sandboxes of the template {template!r} have no browser: use the type browser with a profile"
            raise InvalidArgument(message, {"field": "spec.browser_profile"})
        keeping = self.keeping(wanted)
        if not keeping:
            message = "profiles of browsers are saved in a storage, and the mesh has none: set SANDMESH_STORAGE_FOLDER"
            raise CapabilityMissing(message, {"needs": "storage"})
        return keeping

    def is_silent(self, node_id: str) -> bool:
        """Return whether a node is known and did not answer recently."""
        node = self.by_id(node_id)
        return node is not None and not node.is_healthy

    def healthy_ids(self) -> list[str]:
        """Return the ids of the nodes that answered recently."""
        return [node.node_id for node in self._nodes if node.is_healthy]

    async def refresh_all(self) -> None:
        """Read what every node is and can do; one that does not answer is read again when it is needed."""
        answers = await asyncio.gather(*(node.refresh() for node in self._nodes), return_exceptions=True)
        for node, answer in zip(self._nodes, answers, strict=True):
            if isinstance(answer, BaseException):
                log.warning("a driver does not answer", node=node.name, error=str(answer))

    def note_broken(self, broken: Mapping[tuple[str, str], SandmeshError]) -> None:
        """Record what could not be made ready before this allocator ran, by node's and template's names."""
        for node in self._nodes:
            for (name, template), error in broken.items():
                if name == node.name:
                    self.preparations.note(node, template, error)

    async def place(self, spec: sandbox_pb2.SandboxSpec, caller: str = "", *, drawn: bool = False) -> Placement:
        """Return where a sandbox can go, with its template prepared there; it counts against the caller's limit.

        With `drawn` it may be a few nodes of many, and the want is then `partial`.

        Raises:
            TemplateNotFound: No node of the driver knows the template.
            InvalidArgument: The mesh has no such driver.
            CapabilityMissing: No node has so many ports.
            RuntimeUnavailable, TemplateBuildFailed, ProtocolMismatch: As the driver says.
        """
        few = self._draw(spec) if drawn else []
        nodes = few or await self._with_template(await self._of_driver(spec.driver), spec.template)
        nodes = _with_images(_with_directories(_with_ports(nodes, spec.port_count), spec), spec)
        nodes = _with_devices(_with_secrets(nodes, bool(spec.secrets)), spec.template)
        nodes = _same_version(_in_rotation(await self.preparations.prepared(nodes, spec.template)), spec.template)
        driver = nodes[0].info.name if nodes[0].info else ""
        template = nodes[0].template(spec.template)
        full = normalized(apply_template_limits(spec, template), driver, _default_network(nodes[0], template))
        check_secret_hosts(full)
        key = spec_key(full, template.generation if template else "")
        want = self._want(full, key, nodes, caller)
        return Placement(full, replace(want, partial=True) if few else want)

    def _draw(self, spec: sandbox_pb2.SandboxSpec) -> list[Node]:
        """Return some of many equal nodes where a create can start without waiting; none where all are candidates."""
        first = next((node for node in self._nodes if self._serves(node, spec)), None)
        template = first.template(spec.template) if first else None
        special = spec.snapshot_id or spec.workspace_dir or spec.volumes or spec.secrets or spec.image
        if first is None or first.info is None or template is None or special:
            return []
        driver = first.info.name

        def fits(node: Node) -> bool | None:
            found = node.template(spec.template)
            if not node.is_healthy or node.info is None or found is None or node.breaker.is_open:
                return False
            if node.info.name != driver or _leasable_ports(node.info) < spec.port_count:
                return False
            # Preparing it, and workspaces that only some nodes keep, are for those who look at all nodes.
            if not found.prepared or node.keeps_workspaces != first.keeps_workspaces:
                return None
            return found.generation == template.generation

        return draw(self._nodes, fits)

    def _serves(self, node: Node, spec: sandbox_pb2.SandboxSpec) -> bool:
        wanted = spec.driver or self._settings.default_driver
        return node.is_healthy and node.info is not None and wanted in ("", node.info.name)

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
            memory_bytes=spec.limits.memory_bytes,
            cpu_millis=spec.limits.cpu_millis,
        )

    def wanted(self, info: pb.GetInfoResponse) -> NodeWant:
        """Return a node as scripts place a request on it."""
        limit = self._settings.node_capacities.get(info.node_id) or self._settings.per_node
        own = int(info.capabilities.agent_port)
        return NodeWant(info.node_id, info.name, limit, info.port_range.first, info.port_range.last, own)

    async def _of_driver(self, driver: str) -> list[Node]:
        found = self._healthy(driver)
        if not found:
            # Only then: who waits for the silent ones waits for as long as one of many hangs.
            await self._await_return()
            found = self._healthy(driver)
        if not found:
            wanted = driver or self._settings.default_driver
            names = ", ".join(sorted({node.info.name for node in self._nodes if node.is_healthy and node.info}))
            message = f"the mesh has no driver {wanted!r}; it has: {names}"
            raise InvalidArgument(message, {"field": "spec.driver", "known": names})
        return found

    def _healthy(self, driver: str) -> list[Node]:
        known = [node for node in self._nodes if node.is_healthy]
        wanted = driver or self._settings.default_driver or (known[0].info.name if known and known[0].info else "")
        return [node for node in known if node.info and node.info.name == wanted]

    def late(self, template: str) -> SandmeshError:
        """Return the error of a request for which no node was ready in time."""
        silent = [node for node in self._nodes if not node.is_healthy and node.failure]
        if silent and len(silent) == len(self._nodes):
            return MeshUnavailable(silent[0].failure, {"driver": silent[0].name})
        return self.preparations.deadline_exceeded(template)

    async def _await_return(self) -> None:
        """Wait for a driver that went away just now, which may be a restart."""
        while True:
            try:
                return await self._refresh_silent()
            except MeshUnavailable:
                returns_until = max(node.silent_since for node in self._nodes) + self._settings.driver_return_seconds
                if asyncio.get_running_loop().time() > returns_until:
                    raise
                await asyncio.sleep(_RETURN_POLL_SECONDS)

    async def _refresh_silent(self) -> None:
        silent = [node for node in self._nodes if not node.is_healthy]
        if not silent:
            return
        answers = await asyncio.gather(*(node.refresh() for node in silent), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failures) == len(self._nodes):
            raise failures[0] if failures else RuntimeUnavailable("the mesh has no driver", {"fix": "configure one"})

    async def _with_template(self, nodes: Sequence[Node], template: str) -> list[Node]:
        found = [node for node in nodes if node.template(template)]
        if not found:
            await asyncio.gather(*(node.refresh() for node in nodes))
            found = [node for node in nodes if node.template(template)]
        if not found:
            known = ", ".join(sorted({t.name for node in nodes if node.info for t in node.info.templates}))
            raise TemplateNotFound(f"no template {template!r}; there are: {known}", {"known": known})
        return found


def _in_rotation(nodes: Sequence[Node]) -> list[Node]:
    # A breaker chooses among nodes; where all failed, they are tried all the same, with the pauses of each start.
    return [node for node in nodes if not node.breaker.is_open] or list(nodes)


def _same_version(nodes: Sequence[Node], template: str) -> list[Node]:
    # Nodes that have another version of the template, as in a rolling update, are no place for the same request.
    of_each = {node.name: found.generation for node in nodes if (found := node.template(template))}
    return [node for node in nodes if of_each.get(node.name) == of_each.get(nodes[0].name)]


def _default_network(node: Node, template: pb.TemplateInfo | None) -> sandbox_pb2.NetworkGrant | None:
    # A default is applied where it can be; in a request to a driver that cannot, it would be a requirement.
    able = node.info.capabilities.network_modes if node.info else ()
    return template.network if template and template.network.mode in able else None


def _with_ports(nodes: Sequence[Node], count: int) -> list[Node]:
    found = [node for node in nodes if node.info and _leasable_ports(node.info) >= count]
    if not found:
        message = f"no node has {count} ports to lease; request fewer, or give the driver a wider range of ports"
        raise CapabilityMissing(message, {"needs": "host_ports"})
    return found


def _with_secrets(nodes: Sequence[Node], wanted: bool) -> list[Node]:
    found = [node for node in nodes if not wanted or (node.info and node.info.capabilities.secrets)]
    if not found:
        name = nodes[0].info.name if nodes[0].info else "?"
        message = f"the driver {name} cannot keep secrets out of sandboxes: drop `secrets`, or choose another driver"
        raise CapabilityMissing(message, {"needs": "secrets"})
    return found


def _with_devices(nodes: Sequence[Node], template: str) -> list[Node]:
    wanted = any(_DEVICE_TOOLS in one.tool_groups for node in nodes if (one := node.template(template)))
    found = [node for node in nodes if not wanted or (node.info and node.info.capabilities.devices)]
    if not found:
        fix = "attach one: `sandmesh up --adb-device SERIAL`, as `adb devices` lists it"
        message = f"no node has an Android device, which sandboxes of {template!r} hold: {fix}"
        raise CapabilityMissing(message, {"needs": "adb_device", "fix": fix})
    return found


def _with_directories(nodes: list[Node], spec: sandbox_pb2.SandboxSpec) -> list[Node]:
    if spec.workspace_dir:
        nodes = [node for node in nodes if node.info and node.info.capabilities.workspace_dir]
        if not nodes:
            fix = "drop workspace_dir or choose another driver"
            message = f"no node takes a directory of its host as a workspace: {fix}"
            raise CapabilityMissing(message, {"needs": "workspace_dir"})
    if spec.volumes:
        nodes = [node for node in nodes if node.info and node.info.capabilities.volumes]
        if not nodes:
            fix = "drop them, choose another driver, or set SANDMESH_VOLUMES to a directory that all nodes share"
            raise CapabilityMissing(f"no node has volumes: {fix}", {"needs": "volumes", "fix": fix})
    return nodes


def _with_images(nodes: list[Node], spec: sandbox_pb2.SandboxSpec) -> list[Node]:
    needs = [name for name, wanted in (("images", bool(spec.image)), ("root", spec.root)) if wanted]
    for name in needs:
        found = [node for node in nodes if node.info and getattr(node.info.capabilities, name)]
        if not found:
            driver = nodes[0].info.name if nodes[0].info else "?"
            what = "a root of any image" if name == "images" else "root inside sandboxes"
            fix = "`sandmesh doctor` says what the bubblewrap driver lacks here, or choose another driver"
            message = f"the driver {driver} has not {what}: {fix}"
            raise CapabilityMissing(message, {"needs": name, "fix": fix})
        nodes = found
    return nodes


def _leasable_ports(info: pb.GetInfoResponse) -> int:
    ports = info.port_range
    return ports.last - ports.first + 1 - info.capabilities.agent_port if ports.last else 0
