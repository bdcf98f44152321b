"""A program that holds a box and runs a cell for each line that it reads: `holder.py ADDRESS TTL`."""

from __future__ import annotations

import asyncio
import sys

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError


async def hold(address: str, ttl: float) -> None:
    """Print the box's id, then for each line the output of a cell or the error."""
    box = await BaseSandboxAsync(base_url=address, timeout=10, ttl=ttl).start()
    say(box.sandbox_id)
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            say((await box.run_ipython_cell("print('ran')")).stdout.strip())
        except SandmeshError as error:
            say(type(error).__name__)


def say(line: str) -> None:
    """Write a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], float(sys.argv[2])))
