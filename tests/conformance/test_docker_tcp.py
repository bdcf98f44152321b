"""An engine that is reached over TCP, with certificates on both sides: a relay to its socket is what listens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.conformance.inside import evaluate
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(300)]
HOST = "127.0.0.1"


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def _relay(path: str, tls: ssl.SSLContext) -> AsyncGenerator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(_carry(reader, there_writer), _carry(there_reader, writer))

    async with await asyncio.start_server(serve, HOST, 0, ssl=tls) as server:
        yield f"tcp://{HOST}:{server.sockets[0].getsockname()[1]}"


def _certified(folder: Path) -> ssl.SSLContext:
    """Put the files of a client into a folder; give what its server asks them for."""
    authority: Any = trustme.CA()
    client, server = authority.issue_cert("client.example"), authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    client.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    client.private_key_pem.write_to_path(folder / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    server.configure_cert(context)
    return context


async def test_sandboxes_are_made_by_an_engine_that_is_asked_with_certificates(
    paths: MeshPaths, engine: str, tmp_path: Path
) -> None:
    spec = sandbox_pb2.SandboxSpec(template="base")
    wanted = pb.CreateSandboxRequest(sandbox_id="sb_tls", mesh_id=paths.mesh_id, spec=spec)
    async with asyncio.timeout(120), _relay(engine.removeprefix("unix://"), _certified(tmp_path)) as url:
        settings = DockerSettings(paths=paths, url=url, certificates=tmp_path)
        async with open_driver(settings) as driver:
            made = await driver.create_sandbox(wanted)
            assert await evaluate(made.sandbox, "print(6 * 7)") == 42
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_tls"))
        with pytest.raises(RuntimeUnavailable, match="does not answer"):
            async with open_driver(settings.model_copy(update={"certificates": None})):
                pass
