"""Tokens from the command line, and where secrets must not be seen."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, MeshAsync, SandboxService
from sandmesh.errors import InvalidArgument, SandboxNotFound, Unauthenticated
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.mesh.cli.test_apart import service
from tests.mesh.cli.test_up import sandmesh

STATIC = "the-bearer-of-old"


@dataclass(frozen=True)
class Up:
    """A mesh that asks for tokens: its addresses, the file with its log, and its own secret."""

    unix: str
    tcp: str
    log: Path
    secret: str


@pytest.fixture
async def up(tmp_path: Path) -> AsyncGenerator[Up]:
    """Run `sandmesh up` with a token, and everything logged."""
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    variables = {"MESH_ID": settings.mesh_id, "BEARER_TOKEN": STATIC, "LOG_LEVEL": "DEBUG"}
    environment = {**os.environ, **{f"SANDMESH_{name}": value for name, value in variables.items()}}
    command = ("-m", "sandmeshd.cli.user", "up", "--json", "--listen", "127.0.0.1:0")
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=subprocess.PIPE, stderr=log, env=environment
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        unix, tcp = json.loads(line)["addresses"]
        yield Up(unix, f"grpc://{tcp}", tmp_path / "log", settings.paths.secret.read_text())
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)
        await sweep_state(settings.paths)
        remove(settings.paths)


async def create(up: Up, *arguments: str) -> str:
    """Make a token as the mesh's own user does, on its unix socket, and give the secret."""
    _, out, err = await sandmesh("token", "create", *arguments, "--base-url", up.unix)
    assert "not shown again" in err
    return out.strip()


async def test_tokens_are_made_listed_and_revoked_by_command(up: Up) -> None:
    secret = await create(up, "laptop", "--user", "ada", "--expires", "30d")
    await create(up, "operator", "--scope", "admin", "--expires", "never")
    async with BaseSandboxAsync(base_url=up.tcp, bearer_token=secret) as box:
        _, out, _ = await sandmesh("token", "ls", "-o", "json", "--base-url", up.unix)
        laptop, operator = json.loads(out)
        assert (laptop["scope"], laptop["user_id"], operator["scope"]) == ("SCOPE_USER", "ada", "SCOPE_ADMIN")
        assert "expire_time" in laptop
        assert "expire_time" not in operator
        assert secret not in out
        running = asyncio.create_task(box.run_shell_command("sleep 600"))
        _, out, _ = await sandmesh("token", "revoke", "laptop", "--base-url", up.unix)
        assert out == f"laptop ({laptop['token_id']}) is revoked\n"
        with pytest.raises(Unauthenticated, match="revoked"):
            await running
        with pytest.raises(Unauthenticated, match="revoked"):
            await box.get_info()
        await sandmesh("kill", "--all", "--base-url", up.unix)
        with pytest.raises(Unauthenticated):
            await box.close()
    _, out, _ = await sandmesh("token", "ls", "--base-url", up.unix)
    assert "operator" in out
    assert "laptop" not in out


async def test_a_token_that_only_reads_lists_and_runs_nothing(up: Up) -> None:
    secret = await create(up, "dashboard", "--scope", "read-only")
    async with BaseSandboxAsync(base_url=up.unix) as box:
        _, out, _ = await sandmesh("ls", "-o", "id", "--base-url", up.tcp, "--token", secret)
        assert out == f"{box.sandbox_id}\n"
        arguments = ("exec", "--base-url", up.tcp, "--token", secret, box.sandbox_id, "true")
        code, _, err = await sandmesh(*arguments, check=False)
        assert (code, "the token is read-only" in " ".join(err.split())) == (125, True), err
    async with MeshAsync(base_url=up.tcp, bearer_token=secret) as mesh:
        assert [token.scope for token in await mesh.tokens.list()] == ["read-only"]


async def test_a_token_for_a_sandbox_runs_commands_in_that_one(up: Up) -> None:
    async with BaseSandboxAsync(base_url=up.unix) as box, BaseSandboxAsync(base_url=up.unix) as other:
        assert box.sandbox_id is not None
        secret = await create(up, "tool", "--scope", "sandbox", "--sandbox", box.sandbox_id)
        arguments = ("exec", "--base-url", up.tcp, "--token", secret)
        _, out, _ = await sandmesh(*arguments, box.sandbox_id, "echo", "here")
        assert out == "here\n"
        code, _, err = await sandmesh(*arguments, str(other.sandbox_id), "true", check=False)
        assert (code, "there is no sandbox" in " ".join(err.split())) == (125, True), err
        _, out, _ = await sandmesh("token", "ls", "--base-url", up.unix)
        assert box.sandbox_id in out
    async with MeshAsync(base_url=up.unix) as mesh:
        with pytest.raises(SandboxNotFound):
            await mesh.tokens.create_for_sandbox("late", "sb_none")
        with pytest.raises(InvalidArgument, match="create_for_sandbox"):
            await mesh.tokens.create("late", scope="sandbox")


async def test_what_is_wrong_with_a_tokens_command_is_said(up: Up) -> None:
    for arguments, said in (
        (("create", "x", "--expires", "soon"), "30d"),
        (("create", "x", "--scope", "admin", "--user", "ada"), "leave out --user"),
        (
            ("create", "x", "--scope", "read-only", "--private-network"),
            "--private-network is for the scopes user and project-admin",
        ),
        (("create", "x", "--scope", "sandbox"), "give both"),
        (("create", "x", "--sandbox", "sb_none"), "give both"),
        (("create", "x", "--scope", "sandbox", "--sandbox", "sb_none", "--user", "ada"), "leave out --user"),
        (("create", "x", "--scope", "sandbox", "--sandbox", "sb_none", "--form", "e2b"), "leave out --form"),
        (("create", "x", "--scope", "sandbox", "--sandbox", "sb_none"), "there is no sandbox"),
        (("revoke", "nothing"), "sandmesh token ls"),
    ):
        code, _, err = await sandmesh("token", *arguments, "--base-url", up.unix, check=False)
        assert code != 0
        assert said in " ".join(err.replace("│", " ").split())
    user = await create(up, "ada")
    code, _, err = await sandmesh("token", "ls", "--base-url", up.tcp, "--token", user, check=False)
    assert (code, "administrators" in err) == (5, True)


async def test_the_bearer_token_of_the_settings_goes_on_working(up: Up) -> None:
    service_of_ada = SandboxService(base_url=up.tcp, bearer_token=STATIC)
    await service_of_ada.start()
    [box] = await service_of_ada.connect_async("chat", user_id="ada")
    assert (await box.run_ipython_cell("1+1")).text.strip() == "2"
    await service_of_ada.release_async("chat", user_id="ada")
    await service_of_ada.stop()
    with pytest.raises(Unauthenticated, match="wants a token"):
        await BaseSandboxAsync(base_url=up.tcp).start()


def command_lines() -> str:
    """Return the arguments of every process."""
    found: list[bytes] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return b"\n".join(found).decode(errors="replace")


async def test_no_secret_is_in_a_log_or_a_process_arguments(up: Up) -> None:
    secret = await create(up, "laptop", "--user", "ada")
    async with BaseSandboxAsync(base_url=up.tcp, bearer_token=secret, env={"API_KEY": "hush-hush"}) as box:
        assert (await box.run_shell_command("echo $API_KEY")).stdout == "hush-hush\n"
        arguments = command_lines()
    with pytest.raises(Unauthenticated):
        await BaseSandboxAsync(base_url=up.tcp, bearer_token=secret[:-1] + "7").start()
    log = up.log.read_text()
    assert "a token was created" in log
    assert "valkey" in arguments
    for hidden in (secret, secret[:-1], STATIC, up.secret, "hush-hush"):
        assert hidden not in log
        assert hidden not in arguments


async def refused(environment: dict[str, str], *arguments: str) -> str:
    """Run a service that does not start, and give what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandmeshd.cli.service", *arguments, stderr=subprocess.PIPE, env=environment
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode != 0
    return " ".join(err.decode().split())


async def test_services_apart_serve_only_those_who_have_the_meshs_secret(tmp_path: Path) -> None:
    for name, letter in (("ours", "a"), ("theirs", "b")):
        (tmp_path / name).write_text(letter * 32)
        (tmp_path / name).chmod(0o600)
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    environment = {**os.environ, "SANDMESH_MESH_ID": settings.mesh_id}
    settings.paths.make()
    ours, theirs = ("--secret-file", str(tmp_path / "ours")), ("--secret-file", str(tmp_path / "theirs"))
    driver = ("driver", "bubblewrap", "--listen", f"unix://{settings.paths.services}/d", *ours)
    try:
        said = await refused(environment, "broker", "--listen", "0.0.0.0:0", "--allocator", "127.0.0.1:1")
        assert "--secret-file or SANDMESH_MESH_SECRET" in said
        async with service(environment, *driver) as address:
            options = ("--listen", "127.0.0.1:0", "--driver", f"bubblewrap={address}")
            async with service(environment, "allocator", *options, *ours) as allocator:
                public = ("--listen", "127.0.0.1:0", "--allocator", allocator, "--broker", "127.0.0.1:1")
                async with service(environment, "gateway", *public, *ours) as gateway:
                    _, out, _ = await sandmesh("ls", "-o", "json", "--base-url", gateway)
                    assert out.strip() == "[]"
                async with service(environment, "gateway", *public, *theirs) as gateway:
                    code, _, err = await sandmesh("ls", "--base-url", gateway, check=False)
                    assert code == 5
                    assert "same secret" in err
    finally:
        await sweep_state(settings.paths)
        remove(settings.paths)
