"""Projects and quotas, as administrators set them and users meet them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, Limits, MeshAsync
from sandmesh.errors import InvalidArgument, PermissionDenied, QuotaExceeded, SandboxNotFound
from sandmeshd.mesh import Mesh as RunningMesh
from tests.mesh.commands import running_mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.sandboxes.test_metrics import scrape
from tests.unit.store.waiting import until


@pytest.fixture
def mesh(fresh_mesh: RunningMesh) -> RunningMesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


@pytest_asyncio.fixture(loop_scope="module")
async def admin(mesh: RunningMesh) -> AsyncGenerator[MeshAsync]:
    """Connect as the mesh's own user."""
    async with MeshAsync(mesh.addresses[0]) as connected:
        yield connected


async def test_a_quota_holds_at_once_and_its_error_has_the_figures(mesh: RunningMesh, admin: MeshAsync) -> None:
    quota = await admin.quotas.set({"sandboxes": 1, "memory": "1GiB", "cpus": 0.5}, project="default")
    assert (quota.project, quota.limits) == ("default", {"sandboxes": 1, "memory": 2**30, "cpus": 0.5})
    quota = await admin.quotas.set({"memory": None, "cpus": None}, project="default")
    assert quota.limits == {"sandboxes": 1}
    async with BaseSandboxAsync(base_url=mesh.addresses[0]):
        [used] = [quota for quota in await admin.quotas.list() if quota.project == "default"]
        assert used.use == dict.fromkeys(used.use, 0) | {"sandboxes": 1}
        with pytest.raises(QuotaExceeded, match=r"sandboxes of the project default is reached: 1 of 1") as caught:
            async with BaseSandboxAsync(base_url=mesh.addresses[0]):
                pytest.fail("the quota was exceeded")
        assert caught.value.facts == {
            "quota": "sandboxes", "of": "project", "name": "default", "used": "1", "requested": "1", "limit": "1",
        }  # fmt: skip
        await admin.quotas.set({"sandboxes": 2}, project="default")
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as second:
            assert (await second.run_ipython_cell("1 + 1")).text == "2"


async def test_bad_quotas_are_refused_with_what_is_wrong(admin: MeshAsync) -> None:
    for limits, owner, match in (
        ({"sandboxes": 1}, {}, "name one of the two"),
        ({"sandboxes": 1}, {"project": "p", "user_id": "u"}, "name one of the two"),
        ({"sandboxes": 1}, {"project": "a b"}, "letters, digits"),
        ({"boxes": 1}, {"project": "p"}, "no such quota: 'boxes'"),
        ({"sandboxes": -1}, {"project": "p"}, "limits.sandboxes is a whole number"),
        ({"sandboxes": 1.5}, {"project": "p"}, "limits.sandboxes is a whole number"),
        ({"memory": "much"}, {"project": "p"}, "512MiB"),
        ({}, {"project": "p"}, "at least one"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            await admin.quotas.set(limits, **owner)
    with pytest.raises(InvalidArgument, match="letters, digits"):
        await admin.quotas.assign("ada", "a b")
    assert [quota.project for quota in await admin.quotas.list()] == ["default"]


async def test_users_neither_read_nor_change_quotas() -> None:
    settings = {"listen": ("127.0.0.1:0",), "require_token": True, "bearer_token": "sesame", "bearer_user": "ada"}
    async with run_mesh(**settings) as mesh, MeshAsync(f"grpc://{mesh.addresses[1]}", "sesame") as ada:
        for attempt in (
            ada.quotas.list(),
            ada.quotas.set({"sandboxes": 9}, user_id="ada"),
            ada.quotas.assign("ada", "p"),
            ada.usage.list(),
        ):
            with pytest.raises(PermissionDenied):
                await attempt


def test_the_commands_show_and_set_quotas() -> None:
    with running_mesh() as sandmesh:
        assert sandmesh.run("quota", "set", "--user", "ada", "sandboxes=0", "memory=1GiB").out == (
            "ada: sandboxes=0, memory=1024MiB\n"
        )
        refused = sandmesh.run("run", "--session", "one", "--user", "ada", "--", "true", ok=False)
        assert "the quota sandboxes of the user ada is reached" in refused.err
        assigned = sandmesh.run("quota", "assign", "ada", "research", "-o", "json").json
        assert assigned == {"user_id": "ada", "project": "research"}
        sandmesh.run("quota", "set", "--project", "research", "creates_per_minute=5")
        heading, *rows = [line.split() for line in sandmesh.run("quota", "show").out.splitlines()]
        names = "NAME KIND SANDBOXES MEMORY CPUS CREATES PER MINUTE SNAPSHOT BYTES EXPOSED PORTS CALLS IN FLIGHT"
        assert heading == [*names.split(), "PAUSED", "SANDBOXES", "USERS"]
        assert rows[0] == ["default", "project", "0", "0MiB", "0", "0", "0MiB", "0", "0", "0"]
        assert rows[1] == ["research", "project", "0", "0MiB", "0", "0", "of", "5", "0MiB", "0", "0", "0", "ada"]
        assert rows[2] == ["ada", "user", "0", "of", "0", "0MiB", "of", "1024MiB", "0", "0", "0MiB", "0", "0", "0"]
        [shown] = sandmesh.run("quota", "show", "--user", "ada", "-o", "json").json
        assert shown["limits"] == {"sandboxes": 0, "memory_bytes": "1073741824"}
        assert sandmesh.run("quota", "set", "sandboxes=1", ok=False).code == 2
        assert sandmesh.run("quota", "set", "--user", "ada", "sandboxes=none", "memory=none").out == "ada: no limits\n"


async def test_usage_is_shown_by_project_and_sandbox_and_as_metrics() -> None:
    async with run_mesh() as mesh, MeshAsync(mesh.addresses[0]) as admin:
        [page] = await mesh.http.open()
        await admin.quotas.assign("ada", "research")
        limits = Limits(memory="256MiB", cpus=0.5)
        secret = (await admin.tokens.create("ada")).secret
        async with BaseSandboxAsync(base_url=mesh.addresses[0], bearer_token=secret, limits=limits) as box:
            sandbox_id = box.sandbox_id
            while not (report := await admin.usage.list(project="research")).projects:
                pass
        [project], [own] = report.projects, report.sandboxes
        assert (own.sandbox_id, own.user_id, own.template) == (sandbox_id, "ada", "base")
        assert own.start is not None
        assert own.end is not None
        assert project.sandbox_seconds == own.sandbox_seconds > 0
        assert own.memory_byte_seconds == pytest.approx(own.sandbox_seconds * 256 * 2**20, rel=0.05)
        assert own.cpu_seconds == pytest.approx(own.sandbox_seconds / 2, rel=0.05, abs=0.01)
        assert (await scrape(page))["sandmesh_usage_sandbox_seconds{project=research}"] >= project.sandbox_seconds


async def test_no_snapshot_is_kept_beyond_the_quota(mesh: RunningMesh, admin: MeshAsync) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.fs.write("data", b"x" * 4096)
        first = await admin.snapshots.create(box.sandbox_id)
        await admin.quotas.set({"snapshot_bytes": 3 * first.size_bytes}, project="default")
        several = (admin.snapshots.create(box.sandbox_id) for _ in range(5))
        done = await asyncio.gather(*several, return_exceptions=True)
        refused = [error for error in done if isinstance(error, QuotaExceeded)]
        kept = (await admin.snapshots.list()).snapshots
        assert len(kept) == 1 + len(done) - len(refused) < 6
        [used] = [quota for quota in await admin.quotas.list() if quota.project == "default"]
        assert used.use["snapshot_bytes"] == sum(one.size_bytes for one in kept) <= 3 * first.size_bytes
        assert "snapshot_bytes of the project default is reached" in refused[0].message
        await admin.quotas.set({"snapshot_bytes": 1}, project="default")
        with pytest.raises(QuotaExceeded, match="delete a snapshot"):
            await admin.snapshots.create(box.sandbox_id)
        await admin.quotas.set({"snapshot_bytes": 3 * first.size_bytes}, project="default")
        for one in kept:
            await admin.snapshots.delete(one.snapshot_id)
        await admin.snapshots.delete((await admin.snapshots.create(box.sandbox_id)).snapshot_id)
        assert (await admin.quotas.list())[0].use["snapshot_bytes"] == 0


async def test_a_quota_of_exposed_ports_holds_at_once_and_until_one_is_revoked(
    mesh: RunningMesh, admin: MeshAsync
) -> None:
    await admin.quotas.set({"exposed_ports": 2}, project="default")
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        first = await box.expose(8000)
        await box.expose(8001)
        with pytest.raises(QuotaExceeded) as caught:
            await box.expose(8002)
        assert caught.value.facts == {
            "quota": "exposed_ports", "of": "project", "name": "default", "used": "2", "requested": "1", "limit": "2",
        }  # fmt: skip
        assert (await admin.quotas.list())[0].use["exposed_ports"] == 2
        await first.revoke()
        await box.expose(8002)
        # Lowered below what is in use: nothing ends, nothing is added.
        await admin.quotas.set({"exposed_ports": 1}, project="default")
        assert len(await box.list_exposed()) == 2
        with pytest.raises(QuotaExceeded, match="2 of 1 are in use"):
            await box.expose(8003)
    assert (await admin.quotas.list())[0].use["exposed_ports"] == 0


async def test_a_quota_of_calls_in_flight_holds_for_whoever_calls_and_frees_as_they_end(
    mesh: RunningMesh, admin: MeshAsync
) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell("1+1")
        await admin.quotas.set({"calls_in_flight": 2}, project="default")
        sleeping = [asyncio.create_task(box.run_shell_command("sleep 60")) for _ in range(2)]

        async def counted() -> str:
            try:
                return (await box.run_ipython_cell("2+2")).text
            except QuotaExceeded as error:
                return " ".join(error.facts[name] for name in ("quota", "of", "name", "used", "limit"))

        async def refused() -> bool:
            return await counted() == "calls_in_flight project default 2 2"

        async def answered() -> bool:
            return await counted() == "4"

        await until(refused)
        [used] = [quota for quota in await admin.quotas.list() if quota.project == "default"]
        assert used.use["calls_in_flight"] == 2
        sleeping[0].cancel()
        await asyncio.wait(sleeping[:1])
        await until(answered)
        await admin.quotas.set({"calls_in_flight": None}, project="default")
        sleeping[1].cancel()
        await asyncio.wait(sleeping)


def test_the_command_prints_usage() -> None:
    with running_mesh() as sandmesh:
        sandmesh.run("run", "--session", "one", "--user", "ada", "--", "true")
        heading, row = [line.split() for line in sandmesh.run("usage").out.splitlines()]
        assert heading == ["PROJECT", "SANDBOX", "HOURS", "CPU", "HOURS", "GIB", "HOURS", "EGRESS", "MIB"]
        assert row[0] == "default"
        heading, row = [
            line.split() for line in sandmesh.run("usage", "--by-sandbox", "--since", "1d").out.splitlines()
        ]
        assert heading[:4] == ["SANDBOX", "PROJECT", "USER", "TEMPLATE"]
        assert row[1:4] == ["default", "ada", "base"]
        shown = sandmesh.run("usage", "--sandbox", row[0], "-o", "json").json
        assert [sandbox["sandbox_id"] for sandbox in shown["sandboxes"]] == [row[0]]
        assert sandmesh.run("usage", "--since", "yesterday", ok=False).code == 2


async def test_an_administrator_of_a_project_sees_and_does_what_its_users_may_and_no_more() -> None:
    settings = {"listen": ("127.0.0.1:0",), "require_token": True}
    async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        address = f"grpc://{mesh.addresses[1]}"
        for user, project in (("ada", "research"), ("bob", "sales")):
            await admin.quotas.assign(user, project)
        for user in ("ada", "bob"):
            await admin.quotas.set({"sandboxes": 3}, user_id=user)
        secret = (await admin.tokens.create_for_project("lead", "research")).secret
        async with MeshAsync(address, secret) as lead:
            made = await lead.tokens.create("ada")
            bobs = await admin.tokens.create("bob")
            assert [token.name for token in await lead.tokens.list()] == ["ada"]
            async with (
                BaseSandboxAsync(base_url=address, bearer_token=made.secret) as box,
                BaseSandboxAsync(base_url=address, bearer_token=bobs.secret) as other,
            ):
                sandbox_id = box.sandbox_id
                assert [sandbox.sandbox_id for sandbox in await lead.sandboxes.list()] == [sandbox_id]
                assert {event.sandbox_id for event in await lead.events.list()} == {sandbox_id}
                async with BaseSandboxAsync(sandbox_id=box.sandbox_id, base_url=address, bearer_token=secret) as mine:
                    assert (await mine.run_ipython_cell("6 * 7")).text == "42"
                with pytest.raises(SandboxNotFound):
                    await lead.sandboxes.kill(other.sandbox_id)
                await admin.sandboxes.kill(box.sandbox_id)
                assert [sandbox.sandbox_id for sandbox in await admin.sandboxes.list(user_id="bob")] == [
                    other.sandbox_id
                ]
            assert [(quota.project, quota.user_id) for quota in await lead.quotas.list()] == [
                ("research", ""),
                ("", "ada"),
            ]
            report = await lead.usage.list()
            assert [one.project for one in report.projects] == ["research"]
            assert [sandbox.sandbox_id for sandbox in report.sandboxes] == [sandbox_id]
            with pytest.raises(PermissionDenied, match="the token is only for the project research"):
                await lead.usage.list(project="sales")
            with pytest.raises(PermissionDenied):
                await lead.quotas.set({"sandboxes": 9}, project="research")

            async def audited() -> bool:
                return len(await lead.audit.list()) >= 5

            await until(audited)
            entries = await lead.audit.list()
            seen = {(entry.method.partition(".")[2], entry.scope, entry.user_id) for entry in entries}
            assert ("CreateToken", "project-admin", "") in seen
            assert ("ConnectSession", "user", "ada") in seen
            assert ("ReleaseSandbox", "admin", "") in seen
            assert "bob" not in {entry.user_id for entry in entries}


async def test_what_is_begun_for_users_of_a_project_reaches_public_addresses_alone() -> None:
    settings = {"listen": ("127.0.0.1:0",), "require_token": True}
    async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        secret = (await admin.tokens.create_for_project("lead", "default")).secret
        async with MeshAsync(f"grpc://{mesh.addresses[1]}", secret) as lead:
            with pytest.raises(PermissionDenied, match="name one of its users"):
                await lead.sessions.connect("one")
            session = await lead.sessions.connect("one", "ada", network=["10.0.0.5:5432"])
            [found] = await lead.sandboxes.list()
            assert (found.sandbox_id, found.user_id) == (session.sandboxes["base"], "ada")
            assert found.network is not None
            assert found.network.only_public
            assert await lead.sessions.release("one", "ada") == [found.sandbox_id]


def test_the_command_creates_a_token_for_a_project() -> None:
    with running_mesh() as sandmesh:
        project = ("--scope", "project-admin", "--project", "research")
        refused = sandmesh.run("token", "create", "lead", *project, ok=False)
        assert "there is no project research: assign a user to it" in refused.err
        sandmesh.run("quota", "assign", "ada", "research")
        made = sandmesh.run("token", "create", "lead", *project, "-o", "json").json
        assert (made["token"]["scope"], made["token"]["project"]) == ("SCOPE_PROJECT_ADMIN", "research")
        [row] = [line.split() for line in sandmesh.run("token", "ls").out.splitlines()[1:]]
        assert row[1:4] == ["lead", "project-admin", "research"]
        for wrong in (("--scope", "project-admin"), ("--project", "research"), (*project, "--user", "ada")):
            assert sandmesh.run("token", "create", "two", *wrong, ok=False).code == 2
