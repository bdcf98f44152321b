"""A sandbox that ends under a call: the call ends too, and says how the sandbox ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh import BaseSandboxAsync, ProcessAsync, SandboxService, errors
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.session.info import BoxSession
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.processes import files_below
from tests.unit.store.waiting import until


@pytest.fixture
def mesh(fresh_mesh: Mesh) -> Mesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


async def waiting(box: BaseSandboxAsync) -> ProcessAsync:
    """Start a process that stays."""
    process = await box.processes.start("echo up; sleep 1000")
    await process.wait_for_log("up")
    return process


async def lost(process: ProcessAsync) -> errors.SandboxLost:
    """Wait until a process is lost."""
    with pytest.raises(errors.SandboxLost) as caught:
        await process.wait(30)
    return caught.value


async def test_a_sandbox_whose_agent_was_killed_is_lost_with_that_reason(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        process = await waiting(box)
        await kill_agent(mesh)
        ended = await lost(process)
        assert "signal 9" in ended.facts["detail"]
        assert ended.fault == "infra"


async def test_a_cell_that_kills_its_own_kernel_is_at_fault_as_a_command_that_kills_its_shell_is(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        killed = await box.run_ipython_cell("import os; os.kill(os.getpid(), 9)")
        assert (killed["meta"]["reason"], killed.fault) == ("KILLED", "task")
        assert (await box.run_shell_command("kill -9 $$")).fault == "task"
        assert (await box.run_ipython_cell("1 / 0")).fault == "task"


@pytest.mark.needs("control groups")
async def test_a_sandbox_whose_agent_ran_out_of_memory_is_lost_with_that_reason(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"memory": "64MiB"}) as box:
        process = await waiting(box)
        leave_no_memory(box.sandbox_id)
        filling = asyncio.create_task(box.run_shell_command(f"true {'x' * (60 << 20)}"))
        ended = await lost(process)
        assert "ran out of the memory" in ended.facts["detail"]
        assert ended.fault == "limit"
        with pytest.raises(errors.SandboxLost):
            await filling


async def test_a_sandbox_that_was_released_is_lost_with_that_reason(mesh: Mesh) -> None:
    service = SandboxService(base_url=mesh.addresses[0])
    await service.start()
    (box,) = await service.connect_async("s", user_id="u")
    async with BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0]) as other:
        process = await waiting(other)
        await service.release_async("s", user_id="u")
        assert "released" in (await lost(process)).facts["detail"]
    await service.stop()


async def test_the_holder_of_a_sandbox_learns_how_it_ended(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with asyncio.timeout(60), MeshAsync(address) as admin:
        for name, says in (
            ("killed", "an administrator killed it"),
            ("released", "it was released"),
            ("expired", "its lease ran out"),
        ):
            ttl = 1.0 if name == "expired" else 60.0
            session = await admin.sessions.connect(name, "u", sandbox_type="base", ttl=ttl)
            async with BaseSandboxAsync(session.sandboxes["base"], base_url=address) as holder:
                if name == "killed":
                    await admin.sandboxes.kill(holder.sandbox_id)
                elif name == "released":
                    await admin.sessions.release(name, "u")
                for deleted in (False, True):
                    await until(partial(_is_gone, admin, holder.sandbox_id, deleted=deleted))
                    with pytest.raises(errors.SandboxLost) as caught:
                        await holder.run_shell_command("true")
                    assert caught.value.facts["detail"] == says


async def _is_gone(mesh: MeshAsync, sandbox_id: str, *, deleted: bool) -> bool:
    try:
        state = (await mesh.sandboxes.get(sandbox_id)).state
    except errors.SandboxNotFound:
        return True
    return state == "STOPPING" and not deleted


async def test_a_session_says_whether_its_sandbox_is_new(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with asyncio.timeout(60), MeshAsync(address) as admin:
        seen: list[BoxSession | None] = []
        for end in (False, True, False):
            async with SandboxService(address) as service:
                (box,) = await service.connect_async("kept", "ada")
                seen.append(box.session)
                (again,) = await service.connect_async("kept", "ada")
                assert again.session == BoxSession("ada", "kept", is_new=False)
            if end:
                await admin.sandboxes.kill(box.sandbox_id)
        assert seen == [BoxSession("ada", "kept", is_new) for is_new in (True, False, True)]
        async with BaseSandboxAsync(base_url=address) as alone:
            assert alone.session is None


async def test_a_sandbox_whose_lease_ran_out_is_lost_with_that_reason(mesh: Mesh) -> None:
    async with open_channel(mesh.addresses[0]) as channel:
        slot = session_pb2.SlotSpec(spec=sandbox_pb2.SandboxSpec(template="base"))
        request = session_pb2.ConnectSessionRequest(user_id="u", session_id="s", slots=[slot])
        answer = await session_pb2_grpc.SessionServiceStub(channel).ConnectSession(request)
        (record,) = answer.session.sandboxes.values()
        async with BaseSandboxAsync(record.sandbox_id, base_url=mesh.addresses[0]) as box:
            process = await waiting(box)
            shorter = sandbox_pb2.RenewLeaseRequest(sandbox_id=record.sandbox_id, ttl=Duration(nanos=1_000_000))
            shorter.fencing_token = record.lease.fencing_token
            await sandbox_pb2_grpc.SandboxServiceStub(channel).RenewLease(shorter)
            ended = await lost(process)
            assert "ran out" in ended.facts["detail"]
            assert ended.fault == "limit"


async def test_calls_of_a_box_that_was_closed_say_so(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        process = await waiting(box)
        await box.close()
        # Whichever comes first: that the sandbox was given back, or that the connection was closed.
        with pytest.raises((errors.MeshUnavailable, errors.SandboxLost), match=r"closed|released"):
            await process.wait(30)


def leave_no_memory(sandbox_id: str) -> None:
    """Let a sandbox's agent use hardly more than it does."""
    names = {"memory.usage_in_bytes": "memory.limit_in_bytes", "memory.current": "memory.max"}
    for used, most in names.items():
        for found in files_below(Path("/sys/fs/cgroup"), used):
            if found.match(f"*.{sandbox_id}/agent/*"):
                found.with_name(most).write_text(str(int(found.read_text()) + (8 << 20)))


async def kill_agent(mesh: Mesh) -> None:
    """Kill the agent of a mesh's only sandbox, as a node that is out of memory might."""
    runtime = Path(mesh.addresses[0].removeprefix("unix://")).parents[1]
    (path,) = files_below(runtime, "agent.sock")
    _, writer = await asyncio.open_unix_connection(path)
    peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    os.kill(int.from_bytes(peer[:4], "little"), signal.SIGKILL)
    writer.close()
