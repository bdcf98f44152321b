"""Finds out whether sandboxes can be made on this machine, by making one that does nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap.arguments import View, probe_arguments
from sandmeshd.drivers.bubblewrap.exec_start import memory_file
from sandmeshd.drivers.node.commands import running

SWITCHES = {
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap that has `userns,`",
    ),
}
"""What forbids unprivileged user namespaces: the file, its value, and what allows them, as root."""

GENERAL = "allow unprivileged user namespaces to this user; inside a container choose another driver"


class Probe:
    """Tries once; what worked is taken to go on working."""

    def __init__(self, view: View, agent_filter: bytes) -> None:
        self._view = view
        self._filter = agent_filter
        self._once = asyncio.Lock()
        self._version = ""

    async def version(self) -> str:
        """Give bwrap's version, for a person.

        Raises:
            RuntimeUnavailable: No sandbox can be made; `facts["fix"]` says what to switch on.
        """
        async with self._once:
            if not self._version:
                await self._try()
                self._version = await self._ask()
        return self._version

    async def _try(self) -> None:
        with memory_file(self._filter) as seccomp:
            arguments = probe_arguments(self._view, seccomp)
            async with running(arguments, pass_fds=(seccomp,), cwd=Path("/"), env={}) as command:
                if not await command.succeeded():
                    raise unavailable(command.detail)

    async def _ask(self) -> str:
        async with running([*self._view.bwrap, "--version"], cwd=Path("/"), env={}) as command:
            await command.succeeded()
            return command.detail.strip()


def unavailable(detail: str) -> RuntimeUnavailable:
    """Say why bwrap failed with some last words, and what to do."""
    fixes = [fix for path, (value, fix) in SWITCHES.items() if _value(path) == value]
    fix = "; ".join(fixes) or GENERAL
    return RuntimeUnavailable(f"bwrap cannot make a sandbox ({detail}): {fix}", {"fix": fix, "detail": detail})


def _value(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
