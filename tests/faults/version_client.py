"""What a client does with a mesh of another version; it runs with the SDK of either.

version_client.py prepare|check ADDRESS, with the facts of `prepare` on standard input. It writes what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from sandmesh import BaseSandboxAsync, SandboxService

BIG = 3_000_000


async def prepare(address: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Leave a session with a kernel that knows a number, a file and a snapshot of it."""
    del facts
    service = SandboxService(address, timeout=60)
    await service.start()
    (box,) = await service.connect_async("work", "ada")
    assert not (await box.run_ipython_cell("number = 41")).is_error
    await box.fs.write("kept", "precious\n")
    snapshot = await box.snapshot()
    # Not released: it goes on without this client.
    await service.stop()
    return {"sandbox_id": box.sandbox_id, "snapshot_id": snapshot.snapshot_id}


async def check(address: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Find it again, the same sandbox where it `runs`, and use the mesh in all the ways there are."""
    service = SandboxService(address, timeout=60)
    await service.start()
    (box,) = await service.connect_async("work", "ada")
    assert await box.fs.read("kept") == "precious\n"
    if facts.get("runs"):
        assert box.sandbox_id == facts["sandbox_id"]
        assert (await box.run_ipython_cell("print(number + 1)")).stdout == "42\n"
    assert facts["snapshot_id"] in [one.snapshot_id for one in await box.list_snapshots()]
    async with BaseSandboxAsync(base_url=address, snapshot=facts["snapshot_id"], timeout=60) as other:
        assert (await other.run_shell_command("cat kept")).stdout == "precious\n"
        content = os.urandom(BIG)
        await other.fs.write("big", content)
        assert await other.fs.read("big", "bytes") == content
        assert len((await other.run_shell_command(f"head -c {BIG} /dev/zero | tr '\\0' x")).stdout) == BIG
        process = await other.run_ipython_cell("1/0")
        assert process.is_error
        assert "ZeroDivisionError" in process.text
    await service.stop()
    return {"sandbox_id": box.sandbox_id}


if __name__ == "__main__":
    action = {"prepare": prepare, "check": check}[sys.argv[1]]
    sys.stdout.write(json.dumps(asyncio.run(action(sys.argv[2], json.load(sys.stdin)))) + "\n")
