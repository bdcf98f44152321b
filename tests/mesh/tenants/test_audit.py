"""The audit: who changed what, from where, with what outcome, and who was refused."""

from __future__ import annotations

import json
import re
import socket
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, MeshAsync
from sandmesh.errors import InvalidArgument, PermissionDenied, RuntimeUnavailable, SandboxNotFound, Unauthenticated
from sandmesh.mesh import AuditEntry
from tests.mesh.commands import running_mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.tenants.access_world import REQUESTS, ROOT, open_world, public_methods
from tests.unit.store.waiting import until


async def entries(admin: MeshAsync, count: int, **filters: Any) -> Sequence[AuditEntry]:
    """Wait until the store has so many entries, which reach it in the background."""

    async def reached() -> bool:
        return len(await admin.audit.list(**filters)) >= count

    await until(reached)
    return await admin.audit.list(**filters)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_change_is_recorded_with_who_where_what_and_its_outcome(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    settings = {"listen": ("127.0.0.1:0",), "require_token": True, "bearer_token": "sesame", "audit_file": file}
    async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        made = await admin.tokens.create("ada-laptop", user_id="ada")
        value = "the-value-of-a-variable"
        async with BaseSandboxAsync(
            base_url=f"grpc://{mesh.addresses[1]}",
            bearer_token=made.secret,
            network=["example.org"],
            env={"KEY": value},
        ) as box:
            await box.run_ipython_cell(f"'{value}'")
            sandbox_id = box.sandbox_id
        with pytest.raises(SandboxNotFound):
            await admin.ports.revoke("sb_none", "none")
        found = await entries(admin, 4)
        assert [(one.method, one.outcome, one.user_id, one.scope) for one in found] == [
            ("TokenService.CreateToken", "OK", "", "admin"),
            ("SessionService.ConnectSession", "OK", "ada", "user"),
            ("SessionService.ReleaseSession", "OK", "ada", "user"),
            ("PortService.RevokePort", "SANDBOX_NOT_FOUND", "", "admin"),
        ]
        token, connected, released, refused = found
        assert (token.peer, token.details["name"], token.details["user_id"]) == ("unix", "ada-laptop", "ada")
        assert token.details["token_id"] == made.token.token_id == connected.token_id
        assert connected.peer.startswith("ipv4:127.0.0.1:")
        assert (connected.details["templates"], connected.details["network"]) == ("base", "hosts example.org")
        assert connected.sandbox_ids == released.sandbox_ids == (sandbox_id,)
        assert refused.sandbox_ids == ("sb_none",)
        assert value not in str(found)
        assert made.secret not in str(found)
        written = lines(file)
        assert [(one["method"], one["outcome"]) for one in written] == [(one.method, one.outcome) for one in found]
        assert value not in file.read_text()
        assert made.secret not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600


async def test_refused_attempts_are_recorded_whoever_makes_them() -> None:
    settings = {"listen": ("127.0.0.1:0",), "require_token": True, "bearer_token": "sesame"}
    async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        address = f"grpc://{mesh.addresses[1]}"
        made = await admin.tokens.create("ada", user_id="ada")
        async with MeshAsync(address, "wrong") as stranger, MeshAsync(address, made.secret) as ada:
            with pytest.raises(Unauthenticated):
                await stranger.sandboxes.list()
            with pytest.raises(PermissionDenied):
                await ada.tokens.list()
            with pytest.raises(PermissionDenied):
                await ada.audit.list()
        unknown, listed, audited = (await entries(admin, 4))[1:]
        assert (unknown.outcome, unknown.scope, unknown.token_id) == ("UNAUTHENTICATED", "", "")
        assert (listed.method, listed.outcome, listed.user_id) == (
            "TokenService.ListTokens",
            "PERMISSION_DENIED",
            "ada",
        )
        assert (audited.method, audited.token_id) == ("AuditService.ListAudit", made.token.token_id)


async def test_filters_choose_entries_and_the_limit_keeps_the_newest() -> None:
    async with run_mesh() as mesh, MeshAsync(mesh.addresses[0]) as admin:
        before = datetime.now(UTC)
        for name in ("one", "two", "three"):
            await admin.tokens.revoke((await admin.tokens.create(name)).token)
        with pytest.raises(SandboxNotFound):
            await admin.ports.revoke("sb_none", "none")
        await entries(admin, 7)
        created = await admin.audit.list(method="CreateToken", limit=2)
        assert [one.details["name"] for one in created] == ["two", "three"]
        assert len(await admin.audit.list(method="TokenService.RevokeToken", outcome="OK", since=before)) == 3
        assert [one.method for one in await admin.audit.list(sandbox_id="sb_none")] == ["PortService.RevokePort"]
        assert await admin.audit.list(user_id="nobody") == []
        assert await admin.audit.list(since=datetime.now(UTC) + timedelta(hours=1)) == []
        with pytest.raises(InvalidArgument):
            await admin.audit.list(limit=1001)


async def test_a_file_that_cannot_be_written_is_caught_up_with_or_refuses_changes(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    file = folder / "audit.log"
    async with run_mesh(audit_file=file) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        await admin.tokens.create("while there is no folder")
        folder.mkdir()
        await admin.tokens.create("after that")
        assert [line["details"]["name"] for line in lines(file)] == ["while there is no folder", "after that"]
        file.rename(folder / "audit.log.1")
        await admin.tokens.create("after a rotation")
        assert [line["details"]["name"] for line in lines(file)] == ["after a rotation"]
    async with run_mesh(audit_file=file, audit_on_failure="refuse") as mesh, MeshAsync(mesh.addresses[0]) as admin:
        file.unlink()
        file.mkdir()
        # The first is done already when its entry cannot be written; from then on nothing is.
        await admin.tokens.create("the last")
        with pytest.raises(RuntimeUnavailable, match="nothing is changed without it"):
            await admin.tokens.create("one more")
        assert [token.name for token in await admin.tokens.list()] == ["the last"]
        file.rmdir()
        await admin.tokens.create("again")
        assert [line["details"]["name"] for line in lines(file)] == ["the last", "again"]


async def test_a_mesh_that_goes_on_says_at_its_start_that_its_audit_file_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none" / "audit.log"
    async with run_mesh(audit_file=file) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        said = [line for line in capfd.readouterr().out.splitlines() if "the audit cannot be written" in line]
        assert len(said) == 1
        assert str(file) in said[0]
        assert "No such file or directory" in said[0]
        await admin.tokens.create("all the same")


async def test_a_mesh_that_refuses_changes_does_not_start_without_its_audit_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"audit file .* cannot be written") as caught:
        async with run_mesh(audit_file=tmp_path / "none" / "audit.log", audit_on_failure="refuse"):
            pytest.fail("the mesh started")
    assert "SANDMESH_AUDIT_ON_FAILURE" in caught.value.facts["fix"]


def received(server: socket.socket) -> tuple[str, dict[str, Any]]:
    """Return the header and the entry of the next message of a syslog server."""
    header, brace, text = server.recv(1 << 16).decode("ascii").partition("{")
    return header, json.loads(brace + text)


@contextmanager
def syslog_server(path: Path) -> Generator[socket.socket]:
    """Yield a socket that receives as the machine's syslog server does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.settimeout(20)
        server.bind(str(path))
        yield server
    path.unlink()


async def test_each_entry_is_a_message_of_json_at_the_syslog_server() -> None:
    with tempfile.TemporaryDirectory() as folder, syslog_server(Path(folder, "log")) as server:
        settings = {"audit_syslog": f"unix://{folder}/log"}
        async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
            made = await admin.tokens.create("\u00e4da")
            with pytest.raises(SandboxNotFound):
                await admin.ports.revoke("sb_none", "none")
        header, created = received(server)
        assert re.fullmatch(r"<86>sandmesh-audit\[\d+\]: ", header)
        assert (created["method"], created["details"]["name"]) == ("TokenService.CreateToken", "\u00e4da")
        assert made.secret not in str(created)
        header, refused = received(server)
        assert header.startswith("<85>")
        assert (refused["method"], refused["outcome"]) == ("PortService.RevokePort", "SANDBOX_NOT_FOUND")


async def test_a_syslog_server_on_the_network_gets_messages_of_rfc_5424() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.settimeout(20)
        server.bind(("127.0.0.1", 0))
        address = f"udp://127.0.0.1:{server.getsockname()[1]}"
        async with run_mesh(audit_syslog=address) as mesh, MeshAsync(mesh.addresses[0]) as admin:
            await admin.tokens.create("ada")
        header, created = received(server)
        shape = r"<86>1 [\d-]{10}T[\d:.]+Z \S+ sandmesh-audit \d+ audit - "
        assert re.fullmatch(shape, header)
        assert created["details"]["name"] == "ada"


async def test_a_syslog_server_that_is_gone_is_caught_up_with_or_refuses_changes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        settings = {"audit_syslog": f"unix://{path}"}
        async with run_mesh(**settings) as mesh, MeshAsync(mesh.addresses[0]) as admin:
            await admin.tokens.create("without a server")
            with syslog_server(path) as server:
                await admin.tokens.create("with one")
                assert [received(server)[1]["details"]["name"] for _ in range(2)] == ["without a server", "with one"]
            with syslog_server(path) as server:
                await admin.tokens.create("with the next")
                await admin.tokens.create("once more")
                assert [received(server)[1]["details"]["name"] for _ in range(2)] == ["with the next", "once more"]
        with pytest.raises(InvalidArgument, match=r"syslog server .* cannot be written"):
            async with run_mesh(**settings, audit_on_failure="refuse"):
                pytest.fail("the mesh started")


@pytest.mark.parametrize("address", ["/dev/log", "tcp://127.0.0.1:514", "udp://"])
async def test_what_is_not_the_address_of_a_syslog_server_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"audit_syslog|SANDMESH_AUDIT_SYSLOG"):
        async with run_mesh(audit_syslog=address):
            pytest.fail("the mesh started")


def test_the_command_prints_lines_or_json() -> None:
    with running_mesh() as sandmesh:
        sandmesh.run("token", "create", "ada-laptop", "--user", "ada")
        sandmesh.run("token", "revoke", "ada-laptop")
        shown = sandmesh.run("audit", "--method", "CreateToken").out.splitlines()
        assert [line.split()[2:8] for line in shown] == [
            ["admin", "at", "unix", "TokenService.CreateToken", "OK", "name=ada-laptop"]
        ]
        created = json.loads(sandmesh.run("audit", "--method", "CreateToken", "-o", "json").out)
        assert created["details"]["user_id"] == "ada"
        assert sandmesh.run("audit", "--user", "nobody").out == ""
        assert sandmesh.run("audit", "--since", "soon", ok=False).code == 2


async def test_attempts_at_anothers_sandbox_are_recorded_whatever_rpc_names_it() -> None:
    probes = ("GetSandbox", "ListExposedPorts", "RunCall", "ListTools")
    async with open_world() as world, MeshAsync(world.address, bearer_token=ROOT) as admin:
        adas = await world.own("ada")
        for method in public_methods():
            if method.name in probes:
                request = REQUESTS[f"{method.containing_service.name}.{method.name}"](adas)
                with pytest.raises(SandboxNotFound):
                    await world.send(method, request, "bob")
        found = await entries(admin, 4, user_id="bob")
    assert {one.outcome for one in found} == {"SANDBOX_NOT_FOUND"}
    assert {tuple(one.sandbox_ids) for one in found} == {(adas.sandbox_id,)}
    assert {one.method.partition(".")[0] for one in found} == {"SandboxService", "PortService", "CallService"}
