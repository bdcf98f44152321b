"""`sandmesh up` and the other commands, as a person runs them, and programs that share its sessions."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from sandmesh import SandboxService, errors
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove

VISIT = """
import asyncio, sys
from sandmesh import SandboxService

async def main(address, session, user, code):
    service = SandboxService(base_url=address)
    await service.start()
    [box] = await service.connect_async(session, user_id=user)
    print((await box.run_ipython_cell(code)).text)
    await service.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass(frozen=True)
class Up:
    """A mesh that was started by the command."""

    process: asyncio.subprocess.Process
    unix: str
    tcp: str


async def run(*arguments: str, check: bool = True) -> tuple[int, str, str]:
    """Run this interpreter to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    assert not check or process.returncode == 0, err.decode()
    return process.returncode, out.decode(), err.decode()


async def sandmesh(*arguments: str, check: bool = True) -> tuple[int, str, str]:
    """Run the `sandmesh` command."""
    return await run("-m", "sandmeshd.cli.user", *arguments, check=check)


@pytest.fixture
async def up() -> AsyncGenerator[Up]:
    """Run `sandmesh up`, which ends by Ctrl-C."""
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    environment = {**os.environ, "SANDMESH_MESH_ID": settings.mesh_id}
    command = ("-m", "sandmeshd.cli.user", "up", "-o", "json", "--listen", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        unix, tcp = json.loads(line)["addresses"]
        yield Up(process, unix, f"grpc://{tcp}")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        await sweep_state(settings.paths)
        remove(settings.paths)


async def test_the_same_ids_give_the_same_kernel_to_another_process(up: Up) -> None:
    _, first, _ = await run("-c", VISIT, up.tcp, "chat", "ada", "x = 41; print('set')")
    assert first.strip() == "set"
    _, second, _ = await run("-c", VISIT, up.unix, "chat", "ada", "x + 1")
    assert second.strip() == "42"


async def test_another_user_never_gets_a_sessions_sandbox(up: Up) -> None:
    await run("-c", VISIT, up.tcp, "chat", "ada", "x = 41")
    for user, session in (("bob", "chat"), ("ad", "achat"), ("ada/chat", "x"), ("ADA", "chat")):
        _, seen, _ = await run("-c", VISIT, up.tcp, session, user, "'x' in globals()")
        assert seen.strip() == "False"


async def test_a_released_session_comes_back_empty(up: Up) -> None:
    service = SandboxService(base_url=up.tcp)
    await service.start()
    [box] = await service.connect_async("chat", user_id="ada")
    first = box.sandbox_id
    assert await service.release_async("chat", user_id="ada")
    [again] = await service.connect_async("chat", user_id="ada")
    assert again.sandbox_id != first
    await service.release_async("chat", user_id="ada")
    await service.stop()


async def test_run_passes_output_and_exit_code_through(up: Up) -> None:
    code, out, err = await sandmesh(
        "run",
        "--base-url",
        up.tcp,
        "-e",
        "NAME=Ada",
        "--",
        "bash",
        "-c",
        "echo hi $NAME; echo oh >&2; exit 7",
        check=False,
    )
    assert (code, out, err.splitlines()[-1]) == (7, "hi Ada\n", "oh")


async def test_sandboxes_are_listed_inspected_used_and_killed(up: Up) -> None:
    service = SandboxService(base_url=up.tcp)
    await service.start()
    [box] = await service.connect_async("chat", user_id="ada")
    _, out, _ = await sandmesh("ls", "-o", "json", "--base-url", up.tcp)
    assert [found["sandbox_id"] for found in json.loads(out)] == [box.sandbox_id]
    _, out, _ = await sandmesh("ls", "--base-url", up.tcp)
    assert box.sandbox_id in out
    _, out, _ = await sandmesh("inspect", box.sandbox_id, "--base-url", up.tcp)
    assert json.loads(out)["state"] == "SANDBOX_STATE_READY"
    _, out, _ = await sandmesh("exec", "--base-url", up.tcp, box.sandbox_id, "--", "echo", "it's $HOME")
    assert out == "it's $HOME\n"
    await sandmesh("kill", box.sandbox_id, "--base-url", up.tcp)
    with pytest.raises((errors.SandboxLost, errors.SandboxNotFound, errors.LeaseLost)):
        await box.run_shell_command("sleep 20")
    await service.stop()


async def test_a_mesh_that_runs_is_not_started_twice(up: Up) -> None:
    environment = {**os.environ, "SANDMESH_MESH_ID": mesh_of(up)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandmeshd.cli.user", "up", env=environment, stderr=subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    assert b"runs already" in err


def mesh_of(up: Up) -> str:
    """Give the id that the mesh was started with."""
    with open(f"/proc/{up.process.pid}/environ", "rb") as file:  # noqa: PTH123 - a process's own file
        found = [entry for entry in file.read().split(b"\0") if entry.startswith(b"SANDMESH_MESH_ID=")]
    return found[0].partition(b"=")[2].decode()


async def test_an_address_that_nobody_serves_is_said_so_at_once() -> None:
    code, _, err = await sandmesh("ls", "--base-url", "127.0.0.1:1", check=False)
    assert code == 4
    assert "no mesh answers at 127.0.0.1:1" in err.replace("\n", " ")


async def test_an_address_open_to_others_is_refused() -> None:
    environment = {**os.environ, "SANDMESH_MESH_ID": "test-open", "SANDMESH_EPHEMERAL": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandmeshd.cli.user",
        "up",
        "--listen",
        "0.0.0.0:0",
        env=environment,
        stderr=subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    assert b"TLS" in err
