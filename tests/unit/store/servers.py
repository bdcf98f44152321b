"""Servers of the Redis protocol that tests start, as an operator would run one."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from sandmeshd.store.embedded import server_binary
from tests.ports import free_port
from tests.unit.store.waiting import until

PASSWORD = secrets.token_hex(8)


@dataclass(frozen=True)
class ExternalServer:
    """A server on TCP, with a password, and on a unix socket."""

    port: int
    socket: Path
    process: asyncio.subprocess.Process

    @property
    def tcp_url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        return f"unix://:{PASSWORD}@{self.socket}"


def external_binary() -> str:
    """Give Debian's Redis where it is installed, else Valkey."""
    return shutil.which("redis-server") or str(server_binary())


@asynccontextmanager
async def external_server(folder: Path) -> AsyncGenerator[ExternalServer]:
    """Run a server that keeps nothing."""
    port = free_port()
    path = folder / "external.sock"
    process = await asyncio.create_subprocess_exec(
        external_binary(), "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path), "--save", "",
        "--requirepass", PASSWORD, "--dir", str(folder), "--logfile", str(folder / "external.log"),
    )  # fmt: skip
    try:
        await _answers(f"unix://:{PASSWORD}@{path}")
        yield ExternalServer(port, path, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(url: str) -> None:
    # redis-py's own signatures are partly untyped.
    async with cast("Any", Redis).from_url(url) as client:

        async def answers() -> bool:
            try:
                return bool(await client.execute_command("PING"))
            except RedisConnectionError:
                return False

        await until(answers)
