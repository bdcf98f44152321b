"""What each sandbox uses, as metrics: of so many sandboxes at most, and asked without counting as a use of them.

A gateway measures the sandboxes that it has links to, by the same tool of the agent as `box.stats()`.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import ProtocolMismatch, SandmeshError, from_detail
from sandmesh.shared.wire_errors import translated
from sandmeshd.agentlink.link import AgentLink, LinkChannel
from sandmeshd.auth.principal import SERVICE, acting_for
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.gateway.settings import GatewaySettings

_TOOL: Final = "read_stats"
_ALL_SECONDS: Final = 5.0
"""How long a scrape waits for all sandboxes; Prometheus waits for 10 s."""
_ONE_SECONDS: Final = 2.0
_AT_A_TIME: Final = 8
_MOST_BYTES: Final = 256 * 1024
"""Of an agent's answer: an hour of samples takes 50 KiB."""
_MOST: Final = 2.0**60

_LABELS: Final = ("sandbox", "project")


class SandboxGauges:
    """The values of single sandboxes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cpu = Gauge(
            "sandmesh_sandbox_cpu_cores",
            "Processors in use on average since the sample before.",
            _LABELS,
            registry=registry,
        )
        self.cpu_seconds = Gauge(
            "sandmesh_sandbox_cpu_seconds", "Processor time of a sandbox so far.", _LABELS, registry=registry
        )
        self.memory_bytes = Gauge(
            "sandmesh_sandbox_memory_bytes",
            "Resident memory of a sandbox that is not shared.",
            _LABELS,
            registry=registry,
        )
        self.disk_bytes = Gauge(
            "sandmesh_sandbox_disk_bytes", "What the files of its workspace and home take.", _LABELS, registry=registry
        )
        self.processes = Gauge("sandmesh_sandbox_processes", "Processes of a sandbox.", _LABELS, registry=registry)
        self.sent_bytes = Gauge(
            "sandmesh_sandbox_sent_bytes", "Bytes that a sandbox sent to hosts.", _LABELS, registry=registry
        )
        self.received_bytes = Gauge(
            "sandmesh_sandbox_received_bytes", "Bytes that a sandbox received from hosts.", _LABELS, registry=registry
        )
        self.unmeasured = Gauge(
            "sandmesh_sandboxes_unmeasured",
            "Sandboxes beyond the limit of metrics, or that did not answer in time.",
            registry=registry,
        )

    def update(self, found: Mapping[tuple[str, str], Mapping[str, float]], unmeasured: int) -> None:
        """Show these sandboxes and no others, by id and project, each with the values that it has."""
        gauges = {name: gauge for name, gauge in vars(self).items() if gauge is not self.unmeasured}
        for name, gauge in gauges.items():
            gauge.clear()
            for labels, values in found.items():
                if name in values:
                    gauge.labels(*labels).set(values[name])
        self.unmeasured.set(unmeasured)


_OF_AGENT: Final = ("cpu", "cpu_seconds", "memory_bytes", "disk_bytes", "processes")


class SandboxUse:
    """Measures up to so many sandboxes when metrics are read."""

    def __init__(
        self,
        routes: Routes,
        sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub,
        settings: GatewaySettings,
        registry: CollectorRegistry,
    ) -> None:
        self._routes = routes
        self._sandboxes = sandboxes
        self._most = settings.sandbox_metrics
        self._again_seconds = settings.sandbox_metrics_seconds
        self._gauges = SandboxGauges(registry)
        self._measuring: asyncio.Task[None] | None = None
        self._measured = -math.inf

    async def refresh(self) -> None:
        """Measure, where that is some time ago; those who ask at the same time wait for the same."""
        if self._measuring is None:
            if time.monotonic() - self._measured < self._again_seconds:
                return
            self._measuring = asyncio.create_task(self._measure_all())
        await asyncio.shield(self._measuring)

    def close(self) -> None:
        """Measure no more."""
        if self._measuring is not None:
            self._measuring.cancel()

    async def _measure_all(self) -> None:
        try:
            links = self._candidates()
            places = asyncio.Semaphore(_AT_A_TIME)
            tasks = {link: asyncio.create_task(self._measure(link, places)) for link in links[: self._most]}
            if tasks:
                _, late = await asyncio.wait(tasks.values(), timeout=_ALL_SECONDS)
                for task in late:
                    task.cancel()
            found: dict[tuple[str, str], Mapping[str, float]] = {}
            for link, task in tasks.items():
                if task.done() and not task.cancelled() and (values := task.result()) is not None:
                    found[link.sandbox_id, self._routes.projects.get(link.sandbox_id, "")] = values
            self._gauges.update(found, len(links) - len(found))
            self._measured = time.monotonic()
        finally:
            self._measuring = None

    def _candidates(self) -> list[AgentLink]:
        """Return the links of sandboxes that somebody has and that run, the oldest first: the choice stays the same."""
        routes = self._routes
        return [
            link
            for sandbox_id, link in routes.links.items()
            if sandbox_id not in routes.ahead and sandbox_id not in routes.paused.ids and link.open
        ]

    async def _measure(self, link: AgentLink, places: asyncio.Semaphore) -> Mapping[str, float] | None:
        """Return what a sandbox uses; None where it does not answer."""
        async with places:
            if link.sandbox_id in self._routes.paused.ids:
                return None
            try:
                async with asyncio.timeout(_ONE_SECONDS):
                    used, traffic = await asyncio.gather(_ask(link), self._traffic(link.sandbox_id))
            except (SandmeshError, TimeoutError):
                return None
            return {**used, **traffic}

    async def _traffic(self, sandbox_id: str) -> Mapping[str, float]:
        """Return what went to hosts and came from them; nothing where its driver does not count that."""
        request = sandbox_pb2.GetNetworkRequest(sandbox_id=sandbox_id)
        try:
            with acting_for(SERVICE), translated():
                network = await self._sandboxes.GetNetwork(request, timeout=_ONE_SECONDS)
        except SandmeshError:
            return {}
        return {
            "sent_bytes": sum(host.sent_bytes for host in network.hosts),
            "received_bytes": sum(host.received_bytes for host in network.hosts),
        }


async def _ask(link: AgentLink) -> Mapping[str, float]:
    """Ask an agent what its sandbox uses.

    Raises:
        SandmeshError: It refuses, answers with something else, or its link ended.
    """
    call_id = f"gateway-{secrets.token_hex(12)}"
    ids: dict[str, Any] = {"sandbox_id": link.sandbox_id, "call_id": call_id, "fencing_token": link.fencing_token}
    start = call_pb2.CallStart(**ids, tool=_TOOL, arguments=b"{}")
    start.timeout.FromNanoseconds(int(_ONE_SECONDS * 1e9))
    channel = LinkChannel(link, counts=False)
    try:
        _send(channel, link, call_pb2.CallFrame(call_id=call_id, start=start))
        while True:
            batch = call_pb2.CallEventBatch.FromString((await channel.receive()).batch)
            if batch.HasField("error"):
                raise from_detail(batch.error)
            if batch.events:
                taken = call_pb2.Acknowledge(sequence=batch.events[-1].sequence)
                _send(channel, link, call_pb2.CallFrame(call_id=call_id, acknowledge=taken))
            for event in batch.events:
                if event.HasField("result"):
                    return read_use(event.result.structured_json)
    finally:
        channel.release()


def _send(channel: LinkChannel, link: AgentLink, frame: call_pb2.CallFrame) -> None:
    channel.send(agent_pb2.ToAgent(call=agent_pb2.Fenced(frame=frame, fencing_token=link.fencing_token)))


def read_use(data: bytes) -> dict[str, float]:
    """Read an agent's answer: the values that are there.

    Raises:
        ProtocolMismatch: It is another answer.
    """
    try:
        # One that is too long was cut, so that it cannot be parsed.
        fields: dict[str, Any] = dict(json.loads(data[:_MOST_BYTES]))
        found = {name: float(fields[name]) for name in _OF_AGENT if fields[name] is not None}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ProtocolMismatch(f"an agent does not say what its sandbox uses: {error!r}") from None
    if not all(0 <= value <= _MOST for value in found.values()):
        raise ProtocolMismatch("an agent says that its sandbox uses what no machine has")
    return found
