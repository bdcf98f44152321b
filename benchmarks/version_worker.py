"""One checkout's half of `benchmarks.versions`: a mesh, and operations on it that are measured when their name is read.

It runs by its path with the interpreter of any checkout, and uses only what every version of the project has: the
command line's `up` and `BaseSandboxAsync`.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from sandmesh import BaseSandboxAsync

Milliseconds = dict[str, list[float]]
POOL_SECONDS = 0.7
"""In which a pool is refilled and what waits in it has come to rest."""


async def timed(work: Awaitable[object]) -> float:
    """Return the milliseconds that something takes."""
    started = time.perf_counter()
    await work
    return (time.perf_counter() - started) * 1e3


class Worker:
    """A mesh's address and a sandbox that stays."""

    def __init__(self, address: str, box: BaseSandboxAsync) -> None:
        self.address = address
        self.box = box

    async def _created(self, count: int, pause: float) -> tuple[list[float], list[float]]:
        created: list[float] = []
        released: list[float] = []
        for _ in range(count):
            await asyncio.sleep(pause)
            box = BaseSandboxAsync(base_url=self.address)
            created.append(await timed(self._first(box)))
            released.append(await timed(box.close()))
        return created, released

    @staticmethod
    async def _first(box: BaseSandboxAsync) -> None:
        await box.start()
        await box.run_ipython_cell("1+1")

    async def cold(self) -> Milliseconds:
        """Create sandboxes one after another, each until its first result, and release them."""
        created, released = await self._created(6, 0)
        return {"cold create -> first result": created[1:], "release": released[1:]}

    async def apart(self) -> Milliseconds:
        """Create sandboxes with a pause before each."""
        return {"cold create, 0.3 s after the last": (await self._created(4, 0.3))[0][1:]}

    async def warm(self) -> Milliseconds:
        """Take sandboxes out of a pool."""
        return {"warm create -> first result": (await self._created(3, POOL_SECONDS))[0]}

    async def call(self) -> Milliseconds:
        """Run cells one after another."""
        return {'run_ipython_cell("1+1")': [await timed(self.box.run_ipython_cell("1+1")) for _ in range(50)]}

    async def shell(self) -> Milliseconds:
        """Run commands one after another."""
        return {'run_shell_command("true")': [await timed(self.box.run_shell_command("true")) for _ in range(25)]}

    async def many(self) -> Milliseconds:
        """Run cells by 16 tasks at once; a call's share of the time."""
        await asyncio.gather(*(self.box.run_ipython_cell("1+1") for _ in range(16)))
        whole = await timed(asyncio.gather(*(self._series(20) for _ in range(16))))
        return {"a call's share of 16 tasks' time": [whole / 320]}

    async def _series(self, count: int) -> None:
        for _ in range(count):
            await self.box.run_ipython_cell("1+1")

    async def output(self) -> Milliseconds:
        """Read 64 MB of a command's output."""
        return {"64 MB of standard output": [await timed(self.box.run_shell_command("head -c 64000000 /dev/zero"))]}

    async def imports(self) -> Milliseconds:
        """Start an interpreter that imports a class of the SDK, and the command line."""
        python = (sys.executable, "-c", "from sandmesh import BaseSandbox")
        listing = (sys.executable, "-m", "sandmeshd.cli.user", "ls")
        return {
            "an interpreter with BaseSandbox": [await timed(_run(*python, address=self.address)) for _ in range(2)],
            "sandmesh ls": [await timed(_run(*listing, address=self.address)) for _ in range(2)],
        }


OPERATIONS = ("cold", "apart", "warm", "call", "shell", "many", "output", "imports")


async def _run(*command: str, address: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, env={**os.environ, "SANDMESH_ADDRESS": address}
    )
    if await process.wait():
        raise RuntimeError(f"{command} ended with {process.returncode}")


async def serve(pool: str) -> None:
    """Answer each line of standard input with a line of figures, until it ends."""
    variables = {**os.environ, "SANDMESH_MESH_ID": f"bench-{secrets.token_hex(4)}", "SANDMESH_EPHEMERAL": "true"}
    wanted = ("--pool", pool) if pool else ()
    mesh = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandmeshd.cli.user", "up", "-o", "json", *wanted),
        stdout=asyncio.subprocess.PIPE,
        env={**variables, "SANDMESH_LOG_LEVEL": "WARNING"},
    )
    try:
        if mesh.stdout is None:
            raise RuntimeError("the mesh's output is not read")
        address = json.loads(await mesh.stdout.readline())["addresses"][0]
        async with BaseSandboxAsync(base_url=address) as box:
            await _answer(Worker(address, box))
    finally:
        mesh.terminate()
        await mesh.wait()


async def _answer(worker: Worker) -> None:
    print(json.dumps("ready"), flush=True)
    while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
        operation: Callable[[], Awaitable[Milliseconds]] = getattr(worker, name)
        print(json.dumps(await operation()), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
