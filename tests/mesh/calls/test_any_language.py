"""Clients that are not the SDK, over TLS and tokens: what docs/grpc.md shows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mesh.tenants.access_world import World, open_world, public_methods
from tests.npm import install

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "node"
PAGE = (ROOT / "docs" / "grpc.md").read_text()
ADA = "ada"


@dataclass(frozen=True)
class Ran:
    """How a program ended and what it printed."""

    code: int
    printed: str


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    """Run a mesh that asks for tokens."""
    async with open_world() as opened:
        yield opened


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install what the Node program needs, as its lock file says, beside a copy of it."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(EXAMPLE / name, folder)
    install(folder, "npm")
    return folder


async def run(world: World, who: str, folder: Path, *command: str) -> Ran:
    """Run a program with the mesh's address and somebody's token in its environment."""
    connection = {"SANDMESH_ADDRESS": world.address.removeprefix("grpc://"), "SANDMESH_TOKEN": world.secrets[who]}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **connection, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return Ran(process.returncode, printed.decode())


@pytest.mark.needs("node")
@pytest.mark.timeout(900)
async def test_a_node_program_follows_a_call_carries_a_file_and_reads_a_reason(world: World, packages: Path) -> None:
    ran = await run(world, ADA, packages, "node", "client.mjs", str(ROOT / "protos"))
    assert ran.code == 0, ran.printed
    assert (packages / "received.bin").read_bytes() == (packages / "sent.bin").read_bytes()
    first, *others = ran.printed.splitlines()
    assert re.fullmatch(r"sandbox sb_[a-z0-9]{26}", first)
    assert others == [
        "step 1",
        "step 2",
        "step 3",
        "ended END_REASON_EXITED with 7",
        "the file is the same: true",
        "/etc/passwd: it is outside of what file tools may reach. Allowed: /workspace.",
        "refused SANDBOX_NOT_FOUND of sb_nobody",
    ]


@pytest.mark.needs("node")
@pytest.mark.timeout(900)
async def test_a_node_program_whose_token_was_revoked_reads_that(world: World, packages: Path) -> None:
    gone = "one whose token was revoked"
    ran = await run(world, gone, packages, "node", "client.mjs", str(ROOT / "protos"))
    assert ran.code == 1
    assert "refused UNAUTHENTICATED: the token" in ran.printed
    assert "was revoked" in ran.printed


async def test_the_pages_grpcurl_commands_do_what_it_says(world: World, tmp_path: Path) -> None:
    script = "set -eu\n" + "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL))
    ran = await run(world, ADA, tmp_path, "bash", "-c", script)
    assert ran.code == 0, ran.printed
    assert (tmp_path / "received.bin").read_bytes() == (tmp_path / "sent.bin").read_bytes()
    for expected in (
        '"user_id": "ada"',
        '"state": "SANDBOX_STATE_READY"',
        '"data": "aGkK"',
        '"reason": "END_REASON_EXITED"',
        '"exit_code": 7',
        '"reason":"SANDBOX_NOT_FOUND"',
        '"name": "run_ipython_cell"',
        '"sandbox_ids": [',
        "rpc RunCall ( .sandmesh.api.call.v1.RunCallRequest )",
    ):
        assert expected in ran.printed


async def test_reflection_describes_every_public_method(world: World, tmp_path: Path) -> None:
    names = [method.full_name for method in public_methods()]
    ask = 'grpcurl -plaintext -H "authorization: Bearer $SANDMESH_TOKEN" "$SANDMESH_ADDRESS" describe'
    script = "set -eu\n" + "\n".join(f"{ask} {name}" for name in names)
    ran = await run(world, ADA, tmp_path, "bash", "-c", script)
    assert ran.code == 0, ran.printed
    assert re.findall(r"^(\S+) is a method:$", ran.printed, re.MULTILINE) == names


async def test_reflection_describes_the_standard_services_that_it_lists(world: World, tmp_path: Path) -> None:
    ask = 'grpcurl -plaintext -H "authorization: Bearer $SANDMESH_TOKEN" "$SANDMESH_ADDRESS"'
    ran = await run(world, ADA, tmp_path, "bash", "-c", f"{ask} list | grep ^grpc | xargs -n1 {ask} describe")
    assert (ran.code, re.findall(r"^(\S+) is a service:$", ran.printed, re.MULTILINE)) == (
        0,
        ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"],
    ), ran.printed


@pytest.mark.parametrize(("who", "user", "same"), [(ADA, "", True), ("root", "", False), ("root", "carl", True)])
async def test_the_same_ids_give_the_same_sandbox_only_with_a_user(
    world: World, tmp_path: Path, who: str, user: str, same: bool
) -> None:
    request = json.dumps({"user_id": user, "session_id": "mine", "slots": [{"spec": {"template": "base"}}]})
    ask = 'grpcurl -plaintext -H "authorization: Bearer $SANDMESH_TOKEN" -d "$1" "$SANDMESH_ADDRESS" "$2"'
    method = "sandmesh.api.session.v1.SessionService/ConnectSession"
    command = ("bash", "-c", ask, "ask", request, method)
    made = [json.loads((await run(world, who, tmp_path, *command)).printed)["session"] for _ in range(2)]
    first, second = (one["sandboxes"]["base"]["sandbox_id"] for one in made)
    assert (first == second) is same


def test_the_page_shows_the_program_that_is_run() -> None:
    assert f"```js\n{(EXAMPLE / 'client.mjs').read_text()}```\n" in PAGE


def test_the_lock_file_names_no_host_that_packages_come_from() -> None:
    assert '"resolved"' not in (EXAMPLE / "package-lock.json").read_text()
