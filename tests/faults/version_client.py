"""What a client does with a mesh of another version; it runs with the SDK of either.

version_client.py prepare|check|load ADDRESS, with facts on standard input: those of `prepare`, or how many sessions
`load` has and where it says that they are ready and looks for its end. It writes what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
    assert facts["snapshot_id"] in [snapshot.snapshot_id for snapshot in await box.list_snapshots()]
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


@dataclass
class Counted:
    """What sessions under load counted."""

    calls: int = 0
    failed: list[str] = field(default_factory=list[str])
    longest: float = 0.0
    """The longest call, in seconds."""
    replaced: list[str] = field(default_factory=list[str])
    """Sessions whose sandbox is not the one with which they began."""
    created: int = 0
    """Sandboxes that were made and closed meanwhile, by one more client."""


async def load(address: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Call in many sessions until the file `end` is there."""
    counted, folder = Counted(), Path(facts["folder"])
    service = SandboxService(address, timeout=120)
    await service.start()
    names = [f"{facts['prefix']}-{number}" for number in range(facts["sessions"])]
    boxes = [(await service.connect_async(name, name))[0] for name in names]
    (folder / "ready").touch()
    ended = (folder / "end").exists
    await asyncio.gather(
        *(_session(box, name, counted, ended) for box, name in zip(boxes, names, strict=True)),
        _creates(address, counted, ended),
    )
    for box, name in zip(boxes, names, strict=True):
        (again,) = await service.connect_async(name, name)
        counted.replaced += [name] if again.sandbox_id != box.sandbox_id else []
    await service.stop()
    return asdict(counted)


async def _session(box: BaseSandboxAsync, name: str, counted: Counted, ended: Callable[[], bool]) -> None:
    """Count in a kernel, write and read a file, and print, one after the other."""
    await box.run_ipython_cell("count = 0")
    number = 0
    while not ended():
        number += 1
        began = time.monotonic()
        try:
            cell = await box.run_ipython_cell("count += 1; print(count)")
            seen, number = number, int(cell.stdout)
            assert number == seen, f"the kernel counted {number}, not {seen}"
            await box.fs.write("kept", f"{name} {number}")
            assert await box.fs.read("kept") == f"{name} {number}"
            printed = (await box.run_shell_command("sleep 0.2; seq 500")).stdout
            assert printed == "".join(f"{line}\n" for line in range(1, 501))
        except Exception as error:
            counted.failed.append(f"{name}: {type(error).__name__}: {error}"[:300])
        counted.calls += 4
        counted.longest = round(max(counted.longest, time.monotonic() - began), 1)
        await asyncio.sleep(0.3)


async def _creates(address: str, counted: Counted, ended: Callable[[], bool]) -> None:
    while not ended():
        try:
            async with BaseSandboxAsync(base_url=address, timeout=120) as box:
                assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
            counted.created += 1
        except Exception as error:
            counted.failed.append(f"a create: {type(error).__name__}: {error}"[:300])
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    action = {"prepare": prepare, "check": check, "load": load}[sys.argv[1]]
    sys.stdout.write(json.dumps(asyncio.run(action(sys.argv[2], json.load(sys.stdin)))) + "\n")
