"""A mesh with strangers at its doors: its owner and its clients go on."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import grpc
import pytest

from sandmesh import BaseSandbox, Mesh
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmesh.errors import Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.gateway.door.access import BURST
from tests.mesh.commands import Commands, own_mesh_id
from tests.mesh.conftest import run_mesh

CLIENTS = 16
STRANGERS = 10_000
KEPT_DESCRIPTORS = 1000


@pytest.fixture
def sandmesh() -> Generator[Commands]:
    """Return commands of a mesh that is removed afterwards."""
    with own_mesh_id() as commands:
        yield commands


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), parts.port or 0


def _connect(stack: ExitStack, address: tuple[str, int], count: int) -> None:
    for _ in range(count):
        # A door that is closed is what there is to see.
        with suppress(OSError):
            stack.enter_context(socket.create_connection(address, 10))


@pytest.mark.timeout(300)
def test_silent_strangers_stop_neither_the_owner_nor_clients(sandmesh: Commands) -> None:
    command = ["prlimit", "--nofile=1024:1024", "--", sys.executable, "-m", "sandmeshd.cli.user"]
    up = [*command, "up", "-d", "-o", "json", "--listen", "127.0.0.1:0"]
    variables = {**sandmesh.variables, "SANDMESH_REQUIRE_TOKEN": "true"}
    done = subprocess.run(up, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    unix, tcp = printed["base_urls"]
    secret = sandmesh.run("token", "create", "mine", "-o", "json").json["secret"]
    doors = [_address(url) for url in (tcp, *printed["http"])]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    strangers = min(STRANGERS, soft - KEPT_DESCRIPTORS)
    with ExitStack() as stack:
        boxes = [stack.enter_context(BaseSandbox(base_url=tcp, bearer_token=secret)) for _ in range(2)]
        clients = [stack.enter_context(Mesh(tcp, bearer_token=secret)) for _ in range(CLIENTS)]
        assert all(len(client.sandboxes.list()) == 2 for client in clients)
        with ExitStack() as connected:
            for door in doors:
                _connect(connected, door, strangers // len(doors))
            assert all(len(client.sandboxes.list()) == 2 for client in clients)
            assert [box.run_shell_command("echo on").stdout for box in boxes] == ["on\n"] * 2
            assert len(sandmesh.run("ls", "-o", "json").json) == 2
            with BaseSandbox(base_url=unix) as own:
                assert own.run_shell_command("echo mine").stdout == "mine\n"


def own_address() -> str:
    """Return an address of this machine that is not loopback's, empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.skipif(not own_address(), reason="this machine has a loopback only")
async def test_who_guesses_is_limited_while_a_token_in_force_is_served() -> None:
    async with run_mesh(listen=(f"{own_address()}:0",), require_token=True, allow_insecure=True) as mesh:
        async with grpc.aio.insecure_channel(mesh.addresses[0].replace("unix://", "unix:")) as local:
            request = token_pb2.CreateTokenRequest(name="mine", scope=token_pb2.SCOPE_ADMIN)
            secret = (await token_pb2_grpc.TokenServiceStub(local).CreateToken(request)).secret
        async with grpc.aio.insecure_channel(mesh.addresses[1]) as channel:
            stub = session_pb2_grpc.SessionServiceStub(channel)

            async def show(token: str) -> None:
                metadata = (("authorization", f"Bearer {token}"),)
                with translated():
                    await stub.ListSessions(session_pb2.ListSessionsRequest(user_id="me"), metadata=metadata)

            await show(secret)
            kinds: list[str] = []
            while "limited" not in kinds:
                with pytest.raises(Unauthenticated) as caught:
                    await show(f"smesh_{len(kinds)}")
                kinds.append(caught.value.facts["token"])
            assert kinds[:BURST] == ["invalid"] * BURST
            await show(secret)
