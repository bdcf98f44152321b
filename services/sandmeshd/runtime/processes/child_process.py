"""Waiting for child processes, and for descriptors, without threads."""

from __future__ import annotations

import asyncio
import os
import subprocess

from sandmesh.shared.child_process import ChildProcess


async def readable(descriptor: int) -> None:
    """Return when a descriptor is readable; a pidfd is when its process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process, reap it and return its exit status."""
    if process.returncode is not None:
        return process.returncode
    pidfd = os.pidfd_open(process.pid)
    try:
        await readable(pidfd)
    finally:
        os.close(pidfd)
    return process.wait()


async def end(child: ChildProcess, grace_seconds: float | None = None) -> None:
    """Close a child's pipes and wait for it; it is killed after `grace_seconds`."""
    child.release()
    try:
        async with asyncio.timeout(grace_seconds):
            await wait(child.process)
    except TimeoutError:
        child.process.kill()
        await wait(child.process)
