"""The start of a sandbox: its Secret, its pod, and the wait until its agent answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost, SandboxStartFailed, SandmeshError, TemplateBuildFailed
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.birth import give_birth
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.kubernetes.cluster.requests import CONFLICT, ApiRefusal, Cluster, Resource
from sandmeshd.drivers.kubernetes.kinds import ResourceKind
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from sandmeshd.drivers.kubernetes.pods.reasons import NEVER, NO_IMAGE, PodWait, gone_detail, state_of, waiting_for
from sandmeshd.drivers.kubernetes.pods.watch import PodWatcher
from sandmeshd.drivers.kubernetes.proofs import check_kernel
from sandmeshd.drivers.kubernetes.reach import PodReach
from sandmeshd.drivers.kubernetes.records import PodRecords
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.node.identity import TlsIdentity
from sandmeshd.drivers.node.records import SpecRecord

LOOK_SECONDS = 2.0
"""A pod that is waited for is looked at so often where the watch is silent."""

POLL_SECONDS, FORWARDED_POLL_SECONDS, ATTEMPT_SECONDS = 0.02, 0.3, 5.0
"""Each attempt through the API server starts two programs on the pod's machine."""

PULLS = 3
NO_ROOM_FIX = "add machines, or lower the limits of the sandbox"
UNBOUND_FIX = (
    "check that the StorageClass (SANDMESH_KUBERNETES_STORAGE_CLASS) exists and its provisioner runs, "
    "or set SANDMESH_KUBERNETES_WORKSPACE=disk"
)
LAST_LINES, LAST_CHARACTERS = 3, 500

log = structlog.get_logger()


@dataclass(frozen=True)
class Plan:
    """One sandbox to be started."""

    record: SpecRecord
    name: str
    """The pod's, and the Secret's."""
    kind: ResourceKind
    body: Resource
    """The pod, or the claim."""
    image: str
    files: Mapping[str, bytes]
    identity: TlsIdentity
    birth: tuple[agent_pb2.AgentConfig, ssl.SSLContext] | None = None
    """What an agent that waits is told, and what shows it the mesh's certificate; None: its pod has it."""
    runtime_class: str = ""
    handler: str = ""


class Starter:
    """Starts the sandboxes of one driver."""

    def __init__(
        self, settings: KubernetesSettings, cluster: Cluster, watcher: PodWatcher, records: PodRecords, reach: PodReach
    ) -> None:
        self._reach = reach
        self._settings = settings
        self._cluster = cluster
        self._watcher = watcher
        self._records = records

    async def start(self, plan: Plan) -> pb.RuntimeSandbox:
        """Start a sandbox that has its Secret, and return it when its agent answers.

        On failure the caller removes what was made.

        Raises:
            SandboxStartFailed: Its pod's name is taken, its pod ended or could not be placed, or its agent does not
                answer.
            TemplateBuildFailed: Its image cannot be pulled.
            PoolExhausted: The namespace's quota is used up.
        """
        with self._watcher.start_of(plan.name) as changed:
            await self._create(plan)
            pod = await self._running(plan, changed)
            sandbox = plan.record.sandbox
            sandbox.endpoint = tls_endpoint(str(pod["status"]["podIP"]), AGENT_PORT, plan.identity.pin)
            await self._reach.open(plan.name, self._watcher.pod_name(plan.name))
            reached = self._reached(plan)
            kernel = await self._wait_for_agent(plan, reached)
            check_kernel(plan.runtime_class, plan.handler, kernel)
            sandbox.enforced["kernel"] = reached.enforced["kernel"] = kernel
            sandbox.state = reached.state = pb.RUNTIME_STATE_RUNNING
            await self._records.write(plan.record, str(pod["metadata"]["uid"]))
            return reached

    def _reached(self, plan: Plan) -> pb.RuntimeSandbox:
        """Return a sandbox with the address at which its agent is reached."""
        reached = pb.RuntimeSandbox()
        reached.CopyFrom(plan.record.sandbox)
        reached.endpoint = self._reach.endpoint(plan.name, reached.endpoint)
        return reached

    async def _create(self, plan: Plan) -> None:
        try:
            await self._cluster.create(plan.kind.path(self._cluster), plan.body)
        except ApiRefusal as refusal:
            if refusal.status != CONFLICT:
                raise
            raise self._failed(plan, f"a {plan.kind.kind} {plan.name} exists that is not its own") from None

    async def _running(self, plan: Plan, changed: asyncio.Event) -> Mapping[str, Any]:
        progress = _Progress()
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while True:
                    changed.clear()
                    pod = self._watcher.find(plan.name)
                    if pod is not None and await self._has_started(plan, pod, progress):
                        return pod
                    if pod is None and progress.seen:
                        raise self._failed(plan, self._watcher.why_gone(plan.name))
                    await self._change(plan, changed, progress)
        except TimeoutError:
            why = f"its pod did not start within {self._settings.start_timeout:g} s"
            raise self._failed(plan, f"{why}{await self._last_event(plan)}") from None

    async def _change(self, plan: Plan, changed: asyncio.Event, progress: _Progress) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await changed.wait()
        except TimeoutError:
            reason = progress.unschedulable(self._settings.schedule_timeout)
            if reason:
                raise self._failed(plan, reason) from None

    async def _has_started(self, plan: Plan, pod: Mapping[str, Any], progress: _Progress) -> bool:
        progress.seen = True
        state, detail = state_of(pod)
        if state == pb.RUNTIME_STATE_RUNNING:
            return bool(pod["status"].get("podIP"))
        if state == pb.RUNTIME_STATE_ENDED:
            raise self._failed(plan, detail or gone_detail(pod), await self.last_output(plan.name))
        waiting = waiting_for(pod)
        if waiting is not None and progress.note(waiting):
            log.info("a sandbox waits", sandbox_id=plan.record.sandbox.sandbox_id, reason=waiting.reason)
            self._check_image(plan, waiting, progress)
        return False

    def _check_image(self, plan: Plan, waiting: PodWait, progress: _Progress) -> None:
        if waiting.reason not in NEVER and progress.failures < PULLS:
            return
        fix = "push it where the cluster's machines can pull it, and set SANDMESH_REGISTRY and the pull secrets"
        detail = f"{waiting.reason}: {waiting.message}"
        message = f"the image {waiting.image or plan.image} cannot be used: {detail}; {fix}"
        raise TemplateBuildFailed(message, {"detail": detail, "fix": fix})

    async def _wait_for_agent(self, plan: Plan, reached: pb.RuntimeSandbox) -> str:
        """Return the kernel that the agent sees, once it answers."""
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while (kernel := await self._answers(plan, reached)) is None:
                    pod = self._watcher.find(plan.name)
                    state, detail = (
                        state_of(pod) if pod else (pb.RUNTIME_STATE_ENDED, self._watcher.why_gone(plan.name))
                    )
                    if state == pb.RUNTIME_STATE_ENDED:
                        raise self._failed(plan, detail, await self.last_output(plan.name))
                    await asyncio.sleep(FORWARDED_POLL_SECONDS if self._reach.forwards else POLL_SECONDS)
        except TimeoutError:
            where = plan.record.sandbox.endpoint.partition("?")[0]
            how = "the API server's port-forward" if self._reach.forwards else "the cluster's pods"
            why = f"its agent did not answer at {where}: the driver must reach {how} (SANDMESH_KUBERNETES_REACH)"
            raise self._failed(plan, why, await self.last_output(plan.name)) from None
        return kernel

    async def _answers(self, plan: Plan, reached: pb.RuntimeSandbox) -> str | None:
        """Return the kernel that the agent sees, None if it does not answer.

        One that waits is told before which sandbox it is.
        """
        if plan.birth is not None:
            # It may not be there yet; or it was born, and the answer was lost.
            with suppress(SandboxLost):
                endpoint = self._reach.plain_endpoint(plan.name, plan.record.sandbox.endpoint)
                await give_birth(endpoint, *plan.birth, ATTEMPT_SECONDS)
        return await _answers(reached)

    async def last_output(self, name: str) -> str:
        """Return the last lines that a sandbox's agent wrote, empty where they cannot be read."""
        try:
            data = await self._cluster.text(f"{self._cluster.path('pods', self._watcher.pod_name(name))}/log")
        except SandmeshError:
            return ""
        lines = data.decode("utf-8", "replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-LAST_LINES:])[-LAST_CHARACTERS:]

    async def _last_event(self, plan: Plan) -> str:
        """Return the last warning about a pod, as of a network or volume that it cannot have."""
        selector = f"involvedObject.name={plan.name},type=Warning"
        try:
            found = await self._cluster.get(self._cluster.path("events"), fieldSelector=selector)
        except (SandmeshError, ApiRefusal):
            return ""
        events = sorted(found["items"], key=lambda event: str(event.get("lastTimestamp")))
        return f"; {events[-1]['reason']}: {events[-1]['message']}" if events else ""

    def _failed(self, plan: Plan, why: str, output: str = "") -> SandboxStartFailed:
        message = f"{plan.record.sandbox.sandbox_id} could not be started: {why}"
        if output:
            message = f"{message}; its last output: {output}"
        return SandboxStartFailed(message, {"detail": output or why})


class _Progress:
    """What a start has waited for so far."""

    def __init__(self) -> None:
        self.seen = False
        self.failures = 0
        self._last: PodWait | None = None
        self._since = 0.0

    def note(self, waiting: PodWait) -> bool:
        """Note what is waited for; return whether that is something else than before."""
        changed = self._last is None or waiting.reason != self._last.reason
        if changed:
            self._since = asyncio.get_running_loop().time()
            self.failures += waiting.reason in NO_IMAGE
        self._last = waiting
        return changed

    def unschedulable(self, seconds: float) -> str:
        """Return why no machine has room, if that is so for some time."""
        waited = asyncio.get_running_loop().time() - self._since
        if self._last is None or self._last.reason != "Unschedulable" or waited < seconds:
            return ""
        fix = UNBOUND_FIX if "persistentvolumeclaim" in self._last.message.lower() else NO_ROOM_FIX
        return f"no machine could take it within {seconds:g} s: {self._last.message}; {fix}"


async def _answers(sandbox: pb.RuntimeSandbox) -> str | None:
    try:
        async with open_link(sandbox, ATTEMPT_SECONDS) as link:
            return link.hello.result().kernel
    except SandboxLost:
        return None
