"""The check that this machine can run sandboxes: one that does nothing is started."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap.arguments import SharedView, probe_arguments
from sandmeshd.drivers.bubblewrap.starts.exec_start import memory_file
from sandmeshd.drivers.node.commands import running

RESTRICTION = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
"""The setting that asks for a profile, where it is 1."""

LOAD_PROFILE = (
    "sandmesh doctor --apparmor-profile | sudo tee /etc/apparmor.d/sandmesh && "
    "sudo apparmor_parser --replace /etc/apparmor.d/sandmesh"
)
"""The commands that load the profile."""

_PROFILE = """# Lets this bwrap create user namespaces, and what it starts; it restricts nothing.
# /etc/apparmor.d/sandmesh, loaded by: apparmor_parser --replace /etc/apparmor.d/sandmesh
abi <abi/4.0>,
include <tunables/global>

profile sandmesh-bwrap "{program}" flags=(unconfined) {{
  userns,
}}
"""

SWITCHES = {
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    RESTRICTION: (
        "1",
        f"load a profile of AppArmor: {LOAD_PROFILE}",
    ),
}
"""Settings that forbid unprivileged user namespaces: the file, its value, and the command that allows them."""

GENERAL = "allow unprivileged user namespaces to this user; inside a container choose another driver"


class Probe:
    """Runs the check until it first succeeds."""

    def __init__(self, view: SharedView, agent_filter: bytes) -> None:
        self._view = view
        self._filter = agent_filter
        self._lock = asyncio.Lock()
        self._version = ""

    async def version(self) -> str:
        """Return bwrap's version, for a person.

        Raises:
            RuntimeUnavailable: No sandbox can be started; `facts["fix"]` says what to change.
        """
        async with self._lock:
            if not self._version:
                await self._try()
                self._version = await self._read_version()
        return self._version

    async def _try(self) -> None:
        with memory_file(self._filter) as seccomp:
            arguments = probe_arguments(self._view, seccomp)
            async with running(arguments, pass_fds=(seccomp,), cwd=Path("/"), env={}) as command:
                if not await command.succeeded():
                    raise unavailable(command.detail)

    async def _read_version(self) -> str:
        async with running([*self._view.bwrap, "--version"], cwd=Path("/"), env={}) as command:
            await command.succeeded()
            return command.detail.strip()


def unavailable(detail: str) -> RuntimeUnavailable:
    """Return the error of a failed bwrap, with the fix."""
    fixes = [fix for path, (value, fix) in SWITCHES.items() if _value(path) == value]
    fix = "; ".join(fixes) or GENERAL
    return RuntimeUnavailable(f"bwrap cannot start a sandbox ({detail}): {fix}", {"fix": fix, "detail": detail})


def _value(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def make_profile(program: Path) -> str:
    """Return the profile of a bwrap, by its path without links.

    Raises:
        ValueError: The path has a character that has a meaning in profiles.
    """
    path = str(program.resolve())
    if any(character in path for character in '"*?[]{}^@\\') or not path.isprintable():
        raise ValueError(f"{path!r} cannot be named in a profile: install sandmesh in another directory")
    return _PROFILE.format(program=path)
