"""Transfers whose connections break, and whose client dies."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandmesh import BaseSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker

SIZE = 20_000_000
EACH = 4_000_000

CLIENT = """
import asyncio, sys
from sandmesh import BaseSandboxAsync

async def endless():
    while True:
        yield b"x" * 1_000_000
        print("sent", flush=True)

async def main():
    async with BaseSandboxAsync(sys.argv[1], base_url=sys.argv[2]) as box:
        await box.fs.write("kept", endless())

asyncio.run(main())
"""


class CuttingProxy:
    """Carries TCP connections, and cuts each after so many bytes, whatever is in the middle of what."""

    def __init__(self, port: int) -> None:
        self.cuts = 0
        self._port = port

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        left = [EACH]
        tasks = [
            asyncio.create_task(self._copy(reader, inner_writer, left)),
            asyncio.create_task(self._copy(inner_reader, writer, left)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.cuts += left[0] <= 0
        for end in (writer, inner_writer):
            end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(ConnectionError):
            while left[0] > 0 and (data := await reader.read(65536)):
                left[0] -= len(data)
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def cutting(address: str) -> AsyncGenerator[tuple[str, CuttingProxy]]:
    """Yield the address of a proxy before a mesh's."""
    proxy = CuttingProxy(int(address.rpartition(":")[2]))
    server = await asyncio.start_server(proxy.carry, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy
    finally:
        server.close()


async def test_transfers_go_on_where_their_connection_was_cut(make_mesh: MeshMaker, tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    async with (
        asyncio.timeout(100),
        make_mesh(listen=("127.0.0.1:0",)) as mesh,
        BaseSandboxAsync(base_url=mesh.addresses[0]) as whole,
        cutting(mesh.addresses[1]) as (address, proxy),
        BaseSandboxAsync(whole.sandbox_id, base_url=f"grpc://{address}") as box,
    ):
        await box.fs.write("big", data)
        before = proxy.cuts
        assert before >= 3
        seen = await whole.run_shell_command("sha256sum < big; ls -A")
        assert seen.stdout == f"{hashlib.sha256(data).hexdigest()}  -\nbig\n"
        await box.fs.download_to("big", tmp_path / "big")
        assert proxy.cuts >= before + 3
    assert (tmp_path / "big").read_bytes() == data


async def test_an_upload_whose_client_is_killed_is_not_visible(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.fs.write("kept", "before")
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, box.sandbox_id, mesh.addresses[0], stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        for _ in range(10):
            await client.stdout.readline()
        client.kill()
        await client.communicate()
        seen = await box.run_shell_command("cat kept; ls -A")
    assert seen.stdout == "beforekept\n"
