"""Agents that start with the hash of a mesh's certificate alone and are born later."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from google.protobuf import json_format

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import InvalidArgument, SandboxLost
from sandmeshd.agentlink import addresses
from sandmeshd.agentlink.birth import give_birth, load_mesh_identity
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.node.identity import TlsIdentity, new_identity
from tests.unit.agent.client import SANDBOX, TOKEN
from tests.unit.agent.sandbox import Ground, Sandbox, children, config, prepare_ground, started_with

from .fronts import front


@pytest.fixture(scope="module")
def ground() -> Ground:
    return asyncio.run(prepare_ground())


@pytest.fixture(scope="module")
def key() -> TlsIdentity:
    return new_identity()


def loaded(identity: TlsIdentity, folder: Path) -> ssl.SSLContext:
    (folder / "mesh.pem").write_bytes(identity.pem)
    return load_mesh_identity(folder / "mesh.pem")


@pytest.fixture
def mesh(key: TlsIdentity, tmp_path: Path) -> ssl.SSLContext:
    return loaded(key, tmp_path)


@contextmanager
def waiting(ground: Ground, key: TlsIdentity, seconds: float = 60) -> Generator[Sandbox]:
    """Start an agent that knows the mesh's certificate and its address, and nothing else."""
    birth = {"certificate_sha256": key.pin, "timeout": f"{seconds}s"}
    first = {"listen": "unix:///run/agent/agent.sock", "birth": birth, "ends_with_driver": True}
    with started_with(ground, json.dumps(first).encode() + b"\n") as (sandbox, line):
        assert json.loads(line or "{}") == {"waiting": True}, (sandbox.folder / "log").read_text()
        yield sandbox


def born_as(ground: Ground) -> agent_pb2.AgentConfig:
    whole = config(ground, listen="")
    return json_format.Parse(whole, agent_pb2.AgentConfig())


async def echo(endpoint: str) -> bytes:
    async with asyncio.timeout(60):
        found = driver_pb2.RuntimeSandbox(sandbox_id=SANDBOX, endpoint=endpoint, agent_token=TOKEN)
        while True:
            # Between its birth and the moment when it listens again nothing answers.
            with suppress(SandboxLost):
                async with open_link(found) as link:
                    call = AgentCall(link)
                    call.start(SANDBOX, "run_shell_command", {"command": "echo born"})
                    events = await call.wait()
                    return b"".join(event.output.data for event in events if event.HasField("output"))


def at(sandbox: Sandbox) -> str:
    return f"unix://{sandbox.socket}"


async def test_an_agent_is_born_over_its_first_connection(
    ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext
) -> None:
    with waiting(ground, key) as sandbox:
        await give_birth(at(sandbox), born_as(ground), mesh)
        assert await echo(at(sandbox)) == b"born\n"


async def test_no_user_code_runs_before(ground: Ground, key: TlsIdentity) -> None:
    with waiting(ground, key) as sandbox:
        [zygote] = children(sandbox.agent_pid)
        assert children(zygote) == []
        found = driver_pb2.RuntimeSandbox(sandbox_id=SANDBOX, endpoint=at(sandbox), agent_token=TOKEN)
        for token in (TOKEN, ""):
            found.agent_token = token
            with pytest.raises(SandboxLost):
                async with open_link(found):
                    pass
        assert children(sandbox.agent_pid) == [zygote]


async def test_another_mesh_is_refused_and_the_right_one_still_comes(
    ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext, tmp_path: Path
) -> None:
    other = loaded(new_identity(), tmp_path)
    with waiting(ground, key) as sandbox:
        with pytest.raises(SandboxLost) as refused:
            await give_birth(at(sandbox), born_as(ground), other)
        assert "waits for another mesh" in refused.value.facts["detail"]
        await give_birth(at(sandbox), born_as(ground), mesh)
        assert await echo(at(sandbox)) == b"born\n"


async def test_a_second_birth_is_refused(ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext) -> None:
    with waiting(ground, key) as sandbox:
        births = [give_birth(at(sandbox), born_as(ground), mesh, 20) for _ in range(2)]
        first, second = await asyncio.gather(*births, return_exceptions=True)
        assert [type(one) for one in (first, second)].count(type(None)) == 1
        assert await echo(at(sandbox)) == b"born\n"
        again = born_as(ground)
        again.agent_token = TOKEN[::-1]
        with pytest.raises(SandboxLost):
            await give_birth(at(sandbox), again, mesh, 20)
        assert await echo(at(sandbox)) == b"born\n"


async def test_one_that_has_expired_is_refused_and_names_the_clocks(
    ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext
) -> None:
    with waiting(ground, key) as sandbox:
        with pytest.raises(InvalidArgument, match="expired: is the clock"):
            await give_birth(at(sandbox), born_as(ground), mesh, expiry=-1200)
        with pytest.raises(InvalidArgument, match="needs sandbox_id and agent_token"):
            await give_birth(at(sandbox), agent_pb2.AgentConfig(), mesh)
        await give_birth(at(sandbox), born_as(ground), mesh)
        assert await echo(at(sandbox)) == b"born\n"


async def test_what_was_recorded_at_one_birth_is_of_no_use_for_another(
    ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext, tmp_path: Path
) -> None:
    recorded = bytearray()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_unix_connection(first.socket)

        async def forward() -> None:
            while data := await reader.read(1 << 16):
                recorded.extend(data)
                to_writer.write(data)
            to_writer.close()

        forwarding = asyncio.create_task(forward())
        while data := await to_reader.read(1 << 16):
            writer.write(data)
        writer.close()
        await forwarding

    with waiting(ground, key) as first, waiting(ground, key) as second:
        server = await asyncio.start_unix_server(record, tmp_path / "between")
        await give_birth(f"unix://{tmp_path}/between", born_as(ground), mesh)
        assert await echo(at(first)) == b"born\n"
        server.close()
        assert TOKEN.encode() not in recorded
        assert len(recorded) > 1000
        reader, writer = await asyncio.open_unix_connection(second.socket)
        writer.write(bytes(recorded))
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        await give_birth(at(second), born_as(ground), mesh)
        assert await echo(at(second)) == b"born\n"


async def test_an_agent_that_nobody_gives_birth_to_ends(ground: Ground, key: TlsIdentity) -> None:
    with waiting(ground, key, 0.5) as sandbox:
        assert await asyncio.to_thread(sandbox.process.wait, 60) == 1


@pytest.fixture
async def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    addresses.system_authorities.cache_clear()
    yield
    addresses.system_authorities.cache_clear()


@pytest.mark.usefixtures("trusted")
async def test_a_birth_comes_through_a_clouds_gateway_beside_health_checks(
    ground: Ground, key: TlsIdentity, mesh: ssl.SSLContext, tmp_path: Path
) -> None:
    with waiting(ground, key) as sandbox:
        reader, writer = await asyncio.open_unix_connection(sandbox.socket)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.close()
        async with front(tmp_path, one=sandbox.socket) as cloud:
            await give_birth(cloud.endpoint("one"), born_as(ground), mesh)
            assert await echo(cloud.endpoint("one")) == b"born\n"
