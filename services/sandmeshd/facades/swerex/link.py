"""The way to the program in a sandbox that does what clients ask for."""

from __future__ import annotations

import asyncio
import itertools
import json
from importlib import resources
from typing import Any, Final, cast

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.events import Output
from sandmesh.sandbox.processes import ProcessAsync
from sandmeshd.facades.swerex.errors import GuestError, RuntimeEnded

_PACKAGE: Final = "sandmeshd.facades.swerex"
_MOST_LINE: Final = 64 << 20
_START: Final = """
import json, sys, types
for name, source in json.loads(sys.argv[1]).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main(float(sys.argv[2]))
"""


class GuestLink:
    """Requests to the program, and the replies; what it sends is the sandbox's, and not trusted."""

    def __init__(self, process: ProcessAsync) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read(), name="sandmesh-swerex-replies")

    @property
    def open(self) -> bool:
        """Whether the program runs."""
        return not self._reading.done()

    async def ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call a method; wait for its result.

        Raises:
            GuestError: The method failed.
            RuntimeEnded: The program has ended.
            SandmeshError: The sandbox is lost.
        """
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._process.write(json.dumps({"id": number, "method": method, "body": body}) + "\n")
            if not self.open:
                raise RuntimeEnded
            reply = await future
        finally:
            self._waiting.pop(number, None)
        error = cast("object", reply.get("error"))
        if isinstance(error, dict):
            raise GuestError(cast("dict[str, Any]", error))
        return cast("dict[str, Any]", reply.get("result") or {})

    async def close(self) -> None:
        """End the program; what waits for it fails."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._fail(RuntimeEnded())

    async def _read(self) -> None:
        line = bytearray()
        try:
            async with self._process:
                async for event in self._process:
                    if isinstance(event, Output) and event.stream == "stdout":
                        *lines, rest = event.data.split(b"\n")
                        for one in lines:
                            self._settle(bytes(line) + one)
                            line.clear()
                        line += rest
                    if len(line) > _MOST_LINE:
                        break
            self._fail(RuntimeEnded())
        except SandmeshError as error:
            self._fail(error)

    def _settle(self, line: bytes) -> None:
        try:
            reply: Any = json.loads(line)
            future = self._waiting.get(reply["id"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        if future is not None and not future.done():
            future.set_result(reply)

    def _fail(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


async def start_guest(box: SandboxAsync, idle_seconds: float) -> GuestLink:
    """Start the program in a sandbox."""
    sources = {
        f"{_PACKAGE}.{name}": resources.files(_PACKAGE).joinpath(f"{name}.py").read_text("utf-8")
        for name in ("guest", "shell")
    }
    command = ["python", "-I", "-c", _START, json.dumps(sources), str(idle_seconds)]
    return GuestLink(await box.processes.start(command))
