"""A small, real driver: a sandbox is one child process that sleeps."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import (
    CapabilityMissing,
    LeaseLost,
    SandboxLost,
    SandboxNotFound,
    SandboxStartFailed,
    SandmeshError,
    TemplateBuildFailed,
    WrongState,
)


@dataclass
class Runtime:
    """What the driver stands on: it outlives a driver, as real runtimes do."""

    node_id: str = "node-1"
    ports: tuple[int, int] = (0, 0)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])
    sandboxes: dict[str, pb.RuntimeSandbox] = field(default_factory=dict[str, pb.RuntimeSandbox])
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    created: list[pb.CreateSandboxRequest] = field(default_factory=list[pb.CreateSandboxRequest])
    deleted: list[str] = field(default_factory=list[str])
    prepared: set[str] = field(default_factory=lambda: {"base"})
    prepare_count: int = 0
    prepares: asyncio.Event = field(default_factory=asyncio.Event)
    """Templates are made ready when it is set; it is, until a test clears it."""
    generation: str = "1"
    """What its templates are made of."""
    failures: list[SandmeshError] = field(default_factory=list[SandmeshError])
    """Raised by the next creates and pauses, one each."""
    snapshots: dict[str, pb.RuntimeSnapshot] = field(default_factory=dict[str, pb.RuntimeSnapshot])
    takes_snapshots: bool = True
    agent_port: bool = False
    """Whether each sandbox needs a port of the node's range."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Creates and pauses wait for it."""
    broken: set[str] = field(default_factory=set[str])
    """Templates that cannot be prepared."""
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when one waits at the gate."""
    changes: set[asyncio.Queue[pb.RuntimeSandbox]] = field(default_factory=set[asyncio.Queue[pb.RuntimeSandbox]])
    started: list[asyncio.Task[asyncio.subprocess.Process]] = field(
        default_factory=list[asyncio.Task[asyncio.subprocess.Process]]
    )
    """Every process that ever was: however often those who wait for one are cancelled, `close` ends it."""

    def __post_init__(self) -> None:
        self.gate.set()
        self.prepares.set()

    def tell(self, sandbox: pb.RuntimeSandbox) -> None:
        copied = pb.RuntimeSandbox()
        copied.CopyFrom(sandbox)
        for queue in self.changes:
            queue.put_nowait(copied)

    async def kill(self, sandbox_id: str) -> None:
        """End a sandbox's process from outside, as a crash would."""
        process = self.processes[sandbox_id]
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def start(self) -> asyncio.subprocess.Process:
        starting = asyncio.create_task(asyncio.create_subprocess_exec("sleep", "infinity", start_new_session=True))
        self.started.append(starting)
        return await asyncio.shield(starting)

    async def close(self) -> None:
        for starting in self.started:
            await _end(await starting)

    async def remove(self, sandbox_id: str) -> None:
        process = self.processes.pop(sandbox_id, None)
        self.sandboxes.pop(sandbox_id, None)
        if process is not None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


class ProcessDriver:
    """The Driver interface over child processes."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._reapers: set[asyncio.Task[None]] = set()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        first, last = self.runtime.ports
        templates = [
            pb.TemplateInfo(name=n, prepared=n in self.runtime.prepared, generation=self.runtime.generation)
            for n in NAMES
        ]
        return pb.GetInfoResponse(
            name="process",
            node_id=self.runtime.node_id,
            templates=templates,
            capabilities=pb.Capabilities(snapshot=self.runtime.takes_snapshots, agent_port=self.runtime.agent_port),
            port_range=pb.PortRange(first=first, last=last),
        )

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        raise CapabilityMissing("child processes have no network", {"needs": "network"})

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        yield pb.PrepareTemplateResponse(message="building", fraction=0.5)
        await self.runtime.prepares.wait()
        self.runtime.prepare_count += 1
        if request.template in self.runtime.broken:
            raise TemplateBuildFailed("its image could not be pulled: look", {"fix": "look"})
        self.runtime.prepared.add(request.template)
        yield pb.PrepareTemplateResponse(message="built", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        runtime = self.runtime
        if request.spec.template not in runtime.prepared:
            raise WrongState("the template is not prepared", {"state": "bare"})
        if runtime.failures:
            raise runtime.failures.pop(0)
        process = await runtime.start()
        try:
            runtime.entered.set()
            await runtime.gate.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        runtime.created.append(request)
        sandbox = pb.RuntimeSandbox(
            sandbox_id=request.sandbox_id,
            mesh_id=request.mesh_id,
            state=pb.RUNTIME_STATE_RUNNING,
            endpoint=f"unix:///run/{request.sandbox_id}",
            agent_token=AGENT_TOKEN,
            record_labels=dict(request.record_labels),
            spec=request.spec,
            enforced={"memory": "no"},
        )
        runtime.tokens[request.sandbox_id] = request.fencing_token
        runtime.processes[request.sandbox_id] = process
        runtime.sandboxes[request.sandbox_id] = sandbox
        runtime.tell(sandbox)
        task = asyncio.create_task(self._reap(request.sandbox_id, process))
        self._reapers.add(task)
        task.add_done_callback(self._reapers.discard)
        return pb.CreateSandboxResponse(sandbox=sandbox)

    async def _reap(self, sandbox_id: str, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        sandbox = self.runtime.sandboxes.get(sandbox_id)
        if sandbox is not None:
            sandbox.state = pb.RUNTIME_STATE_ENDED
            sandbox.end_detail = f"signal {-status}" if status < 0 else f"exit code {status}"
            self.runtime.tell(sandbox)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        return pb.InspectSandboxResponse(sandbox=self._find(request.sandbox_id))

    def _find(self, sandbox_id: str) -> pb.RuntimeSandbox:
        if sandbox_id not in self.runtime.sandboxes:
            raise SandboxNotFound("no such sandbox")
        return self.runtime.sandboxes[sandbox_id]

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        return pb.ListSandboxesResponse(sandboxes=list(self.runtime.sandboxes.values()))

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        await self.runtime.remove(request.sandbox_id)
        self.runtime.deleted.append(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        queue: asyncio.Queue[pb.RuntimeSandbox] = asyncio.Queue()
        self.runtime.changes.add(queue)
        try:
            for sandbox in list(self.runtime.sandboxes.values()):
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            while True:
                yield pb.WatchSandboxesResponse(sandbox=await queue.get())
        finally:
            self.runtime.changes.discard(queue)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        sandbox = self._find(request.sandbox_id)
        if self.runtime.processes[request.sandbox_id].returncode is not None:
            raise SandboxLost("it has ended", {"detail": sandbox.end_detail})
        if request.fencing_token < self.runtime.tokens[request.sandbox_id]:
            raise LeaseLost("a higher one is in force")
        self.runtime.tokens[request.sandbox_id] = request.fencing_token
        sandbox.record_labels.clear()
        sandbox.record_labels.update(request.record_labels)
        return pb.InstallTokenResponse()

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        if not self.runtime.gate.is_set():
            self.runtime.entered.set()
            await self.runtime.gate.wait()
        if self.runtime.failures:
            raise self.runtime.failures.pop(0)
        self._signal(request.sandbox_id, signal.SIGSTOP, pb.RUNTIME_STATE_PAUSED)
        return pb.PauseSandboxResponse()

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        self._signal(request.sandbox_id, signal.SIGCONT, pb.RUNTIME_STATE_RUNNING)
        return pb.ResumeSandboxResponse()

    def _signal(self, sandbox_id: str, number: signal.Signals, state: pb.RuntimeState.ValueType) -> None:
        sandbox = self._find(sandbox_id)
        self.runtime.processes[sandbox_id].send_signal(number)
        sandbox.state = state
        self.runtime.tell(sandbox)

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        sandbox = self._find(request.sandbox_id)
        kept = pb.RuntimeSnapshot(
            snapshot_id=request.snapshot_id,
            sandbox_id=request.sandbox_id,
            template=sandbox.spec.template,
            record_labels=request.record_labels,
        )
        return pb.SnapshotSandboxResponse(snapshot=self.runtime.snapshots.setdefault(request.snapshot_id, kept))

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        return pb.ListSnapshotsResponse(snapshots=list(self.runtime.snapshots.values()))

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        self.runtime.snapshots.pop(request.snapshot_id, None)
        return pb.DeleteSnapshotResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        self._find(request.sandbox_id)
        return pb.GetLogsResponse(data=b"first line\nlast words \xff\n")


NAMES = ("base", "bare", "other")
AGENT_TOKEN = secrets.token_hex(4)


def start_failure() -> SandboxStartFailed:
    """Give the error of a runtime that cannot start a sandbox."""
    return SandboxStartFailed("the sandbox did not start: no space left", {"detail": "no space left"})
