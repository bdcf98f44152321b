"""The public client of a mesh, on a whole mesh."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, Mesh, MeshAsync
from sandmesh.errors import (
    AlreadyExists,
    InvalidArgument,
    SandboxNotFound,
    SessionNotFound,
    SnapshotNotFound,
    TokenNotFound,
    WrongState,
)
from sandmesh.inputs import Limits, NetworkGrant
from sandmeshd.mesh import Mesh as RunningMesh
from tests.mesh.conftest import Home


@pytest.fixture
def mesh(fresh_mesh: RunningMesh) -> RunningMesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


@pytest_asyncio.fixture(loop_scope="module")
async def client(mesh: RunningMesh) -> AsyncGenerator[MeshAsync]:
    """Connect a client."""
    async with MeshAsync(mesh.addresses[0]) as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: RunningMesh) -> AsyncGenerator[BaseSandboxAsync]:
    """Hold a sandbox with a label."""
    async with BaseSandboxAsync(
        base_url=mesh.addresses[0], labels={"team": "red"}, limits={"pids": 100}, network="none"
    ) as opened:
        yield opened


async def test_a_record_has_what_inspect_prints(client: MeshAsync, box: BaseSandboxAsync) -> None:
    found = await client.sandboxes.get(box.sandbox_id)
    assert (found.sandbox_id, found.template, found.state, found.in_use) == (box.sandbox_id, "base", "READY", True)
    assert found.labels == {"team": "red"}
    assert found.limits == Limits(pids=100)
    assert found.network == NetworkGrant("none")
    assert found.lease is not None
    assert found.lease.expires > found.created
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["sandbox_id"] == box.sandbox_id
    assert plain["state"] == "SANDBOX_STATE_READY"
    assert plain["spec"]["labels"] == {"team": "red"}
    assert plain["enforced"] == found.enforced
    with pytest.raises(SandboxNotFound):
        await client.sandboxes.get("sb_none")


async def test_filters_choose_what_is_listed(client: MeshAsync, box: BaseSandboxAsync) -> None:
    record = await client.sandboxes.get(box.sandbox_id)
    assert await client.sandboxes.list() == [record]
    assert await client.sandboxes.list(labels={"team": "red"}, state="ready", template="base") == [record]
    assert await client.sandboxes.list(user_id=record.user_id, session_key=record.session_key) == [record]
    assert await client.sandboxes.list(labels={"team": "blue"}) == []
    assert await client.sandboxes.list(state="PAUSED") == []
    assert await client.sandboxes.list(template="filesystem") == []
    assert await client.sandboxes.list(user_id="nobody") == []


async def test_events_are_listed_and_followed_until_the_sandbox_is_killed(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    listed = await client.events.list(box.sandbox_id)
    assert [event.kind for event in listed][:1] == ["created"]
    assert listed == await client.events.list(box.sandbox_id, after="0-0")
    assert [event.event_id for event in await client.events.list(box.sandbox_id, limit=1)] == [listed[-1].event_id]
    kinds: list[str] = []
    async with asyncio.timeout(30), client.events.follow(box.sandbox_id, after=listed[-1].event_id) as events:
        await client.sandboxes.kill(box.sandbox_id)
        async for event in events:
            kinds.append(event.kind)
            if event.kind == "deleted":
                break
    assert kinds[-2:] == ["stopping", "deleted"]


async def test_logs_are_read_and_followed_to_the_sandboxes_end(client: MeshAsync, box: BaseSandboxAsync) -> None:
    read = await client.sandboxes.logs(box.sandbox_id)
    assert read.end_offset >= len(read.data)
    rest = await client.sandboxes.logs(box.sandbox_id, after_offset=read.end_offset)
    assert rest.data == b""
    followed = client.sandboxes.follow_logs(box.sandbox_id)
    await client.sandboxes.kill(box.sandbox_id)
    async with asyncio.timeout(30):
        assert b"".join([chunk.data async for chunk in followed]).startswith(read.data)
    with pytest.raises(SandboxNotFound):
        await client.sandboxes.logs("sb_none")


async def test_sessions_are_connected_listed_and_released(client: MeshAsync) -> None:
    made = await client.sessions.connect("chat", "ada", labels={"team": "blue"})
    again = await client.sessions.connect("chat", "ada")
    assert again.sandboxes == made.sandboxes
    assert await client.sessions.list("ada") == [await client.sessions.get("chat", "ada")]
    [sandbox] = await client.sandboxes.list(user_id="ada")
    assert (sandbox.sandbox_id, sandbox.labels) == (made.sandboxes["base"], {"team": "blue"})
    assert await client.sessions.release("chat", "ada") == [sandbox.sandbox_id]
    assert await client.sessions.list("ada") == []
    with pytest.raises(SessionNotFound):
        await client.sessions.get("chat", "ada")


async def test_tokens_are_created_listed_and_revoked(client: MeshAsync) -> None:
    made = await client.tokens.create("laptop", user_id="ada", ttl=3600)
    assert made.secret.startswith("smesh_")
    assert made.secret not in repr(made)
    assert (made.token.scope, made.token.user_id, made.token.revoked) == ("user", "ada", None)
    assert made.token.expires is not None
    with pytest.raises(AlreadyExists):
        await client.tokens.create("laptop")
    admin = await client.tokens.create("ci", scope="admin")
    assert (admin.token.scope, admin.token.user_id, admin.token.expires) == ("admin", "", None)
    assert [token.name for token in await client.tokens.list()] == ["ci", "laptop"]
    assert (await client.tokens.revoke(made.token)).revoked is not None
    await client.tokens.revoke(admin.token.token_id)
    assert await client.tokens.list() == []
    assert len(await client.tokens.list(include_ended=True)) == 2
    with pytest.raises(TokenNotFound):
        await client.tokens.revoke("a" * 16)


async def test_templates_are_listed_with_what_their_nodes_have(client: MeshAsync, mesh: RunningMesh) -> None:
    definition = {"name": "reports", "description": "Writes reports", "limits": {"pids": 64}, "security_level": "high"}
    registration = await client.templates.register(definition)
    listed = {template.name: template for template in await client.templates.list()}
    assert {"base", "browser", "filesystem", "gui", "reports"} <= set(listed)
    assert list(listed) == sorted(listed)
    base, reports = listed["base"], listed["reports"]
    assert base.tool_groups == ("generic", "git")
    assert [(node.driver, node.prepared) for node in base.nodes] == [("bubblewrap", True)]
    assert base.network_fixed is False
    assert "chromium-headless-shell" in listed["browser"].system
    assert (reports.description, reports.limits, reports.network_fixed) == ("Writes reports", Limits(pids=64), True)
    assert [node.generation for node in reports.nodes] == [registration.generation]
    assert reports.to_json()["name"] == "reports"


async def test_a_template_is_registered_by_what_its_file_would_have(client: MeshAsync, mesh: RunningMesh) -> None:
    definition = {"name": "reports", "environment": {"NAME": "Ada"}}
    first = await client.templates.register(definition)
    assert (first.name, first.changed) == ("reports", True)
    second = await client.templates.register(definition)
    assert (second.generation, second.changed) == (first.generation, False)
    async with BaseSandboxAsync(base_url=mesh.addresses[0], sandbox_type="reports") as box:
        assert (await box.run_shell_command("echo $NAME")).stdout == "Ada\n"
    with pytest.raises(InvalidArgument, match="no 'colour'"):
        await client.templates.register({"name": "reports", "colour": "red"})
    with pytest.raises(InvalidArgument, match=r"SandboxRegistry\.register"):
        await client.templates.register(int)


async def test_a_snapshot_of_a_named_sandbox_is_taken_listed_used_and_deleted(
    client: MeshAsync, box: BaseSandboxAsync, mesh: RunningMesh
) -> None:
    await box.run_shell_command("echo kept > file")
    made = await client.snapshots.create(box.sandbox_id)
    assert (made.sandbox_id, made.sandbox_type, made.driver) == (box.sandbox_id, "base", "bubblewrap")
    assert (await client.snapshots.list()).snapshots == (made,)
    async with BaseSandboxAsync(base_url=mesh.addresses[0], snapshot=made) as other:
        assert (await other.run_shell_command("cat file")).stdout == "kept\n"
        assert (await client.sandboxes.get(other.sandbox_id)).snapshot_id == made.snapshot_id
    await client.snapshots.delete(made)
    found = await client.snapshots.list()
    assert (found.snapshots, found.silent_nodes) == ((), ())
    with pytest.raises(SnapshotNotFound):
        await client.snapshots.delete(made.snapshot_id)


async def test_a_port_of_a_named_sandbox_is_exposed_and_revoked(client: MeshAsync, box: BaseSandboxAsync) -> None:
    made = await client.ports.expose(box.sandbox_id, 8000, ttl=60)
    assert made.url.endswith("/")
    assert await client.ports.list(box.sandbox_id) == [made]
    await client.ports.revoke(box.sandbox_id, made.exposure_id)
    assert await client.ports.list(box.sandbox_id) == []


async def test_capacity_health_and_a_sweep_describe_a_mesh_that_is_well(
    client: MeshAsync, box: BaseSandboxAsync
) -> None:
    capacity = await client.capacity()
    assert (capacity.used, capacity.templates) == (1, {"base": 1})
    assert capacity.limit > 1
    assert capacity.next_expiry is not None
    health = await client.health()
    assert health.troubles == ()
    assert [(node.driver, node.in_rotation) for node in health.nodes] == [("bubblewrap", True)]
    report = await client.sweep(dry_run=True)
    assert (report.findings, report.recovering) == ((), False)
    assert box.is_open


async def test_a_program_without_a_loop_has_the_same_client(mesh: RunningMesh, box: BaseSandboxAsync) -> None:
    def use() -> list[str]:
        with Mesh(mesh.addresses[0]) as client:
            [record] = client.sandboxes.list(labels={"team": "red"})
            with client.events.follow(record.sandbox_id, after="0-0") as events:
                kinds = [next(events).kind]
            assert client.capacity().used == 1
            return [record.sandbox_id, *kinds]

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(use) == [box.sandbox_id, "created"]


async def test_a_client_that_is_not_open_says_so(mesh: RunningMesh) -> None:
    client = MeshAsync(mesh.addresses[0])
    with pytest.raises(WrongState, match="not open"):
        await client.capacity()
    await client.start()
    await client.close()
    await client.close()
    with pytest.raises(WrongState, match="not open"):
        await client.capacity()


NO_MESH = """
from sandmesh import BaseSandbox, Mesh
from sandmesh.errors import MeshUnavailable

try:
    Mesh().start()
except MeshUnavailable as error:
    print(error.facts["fix"])
with BaseSandbox() as box, Mesh() as mesh:
    print([one.sandbox_id for one in mesh.sandboxes.list()] == [box.sandbox_id])
"""


def test_no_mesh_is_started_but_the_programs_private_one_is_found(home: Home) -> None:
    environment = {**home.environment, "SANDMESH_MESH_ID": "nobodys"}
    done = subprocess.run(
        [sys.executable, "-c", NO_MESH], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    assert "sandmesh up -d" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"
