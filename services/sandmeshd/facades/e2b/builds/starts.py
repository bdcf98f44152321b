"""The start of a built template: its command, and the command that says when it is ready."""

from __future__ import annotations

import asyncio
from typing import Final

from sandmesh.sandbox.processes import ProcessOptions
from sandmeshd.facades.e2b.envd.followed import ProcessConfig
from sandmeshd.facades.e2b.envd.paths import inside
from sandmeshd.facades.e2b.envd.processes import environment
from sandmeshd.facades.e2b.guests import Guest

READY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2
_ONCE: Final = 'mkdir "/tmp/.started-$1" 2>/dev/null || exit 0; exec /bin/bash -l -c "$2" > "/tmp/.started-$1/log" 2>&1'
"""A request that is repeated starts nothing twice."""


class NotReady(Exception):
    """A template's start did not become ready; the message is for the one who wrote it."""


async def run_start(guest: Guest, build_id: str, start: str, ready: str, variables: dict[str, str]) -> None:
    """Start a template's command in a sandbox, and wait until it is ready; `variables` are what the sandbox has not.

    Raises:
        NotReady: It was not within READY_SECONDS.
    """
    workdir = guest.marks.workdir
    options: ProcessOptions = {
        "cwd": inside(workdir),
        "env": environment(guest, ProcessConfig(cmd="/bin/bash", envs=variables, cwd=workdir)),
        # It is not read.
        "overflow": "drop_oldest",
    }
    if start:
        arguments = ["/bin/bash", "-c", _ONCE, "bash", build_id, start]
        started = await guest.box.processes.start(guest.command_as("", arguments), **options)
        await started.close_stdin()
        await started.detach()
    if not ready:
        return
    try:
        async with asyncio.timeout(READY_SECONDS):
            while True:
                if await _succeeds(guest, ready, options):
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise NotReady(f"readyCmd did not succeed within {READY_SECONDS:.0f} s: {ready}") from None


async def _succeeds(guest: Guest, command: str, options: ProcessOptions) -> bool:
    arguments = ["/bin/bash", "-l", "-c", command]
    async with await guest.box.processes.start(guest.command_as("", arguments), **options) as process:
        await process.close_stdin()
        return (await process.wait()).exit_code == 0
