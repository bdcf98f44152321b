"""Instances of the stand-in: the image's agent with the command of its function, and the rights of a plain container.

bubblewrap makes them in place of an engine: the root file system is writable, the capabilities are those that engines
leave by default, and the network namespace leads nowhere.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandmeshd.drivers.bubblewrap.arguments import FOLDERS
from sandmeshd.drivers.bubblewrap.environment import home_files
from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME, MCP, WORKSPACE
from tests.unit.agent.sandbox import Ground

KEPT = "CHOWN DAC_OVERRIDE FSETID FOWNER NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL"
CLONE_NEWNET = 0x40000000
HEALTH = b"GET / HTTP/1.1\r\nHost: instance\r\n\r\n"
START_SECONDS = 60.0

libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Instance:
    """A running instance."""

    process: subprocess.Popen[bytes] | None
    """What runs it, where that is a process of this one."""
    pid: int
    port: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        code = self.process.poll() if self.process else None
        return None if code is None else (128 - code if code < 0 else code)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to its port, in its network namespace."""
        made = await asyncio.to_thread(_connect_in, self.pid, self.port)
        return await asyncio.open_connection(sock=made, limit=1 << 20)

    async def wait(self) -> None:
        """Wait until its health check answers, as the vendor does."""
        async with asyncio.timeout(START_SECONDS):
            while self.exit_code is None and not self.ready.is_set():
                with suppress(OSError):
                    reader, writer = await self.connect()
                    writer.write(HEALTH)
                    if (await reader.read()).startswith(b"HTTP/1.1 200"):
                        self.ready.set()
                    writer.close()
                if not self.ready.is_set():
                    await asyncio.sleep(0.02)

    def end(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)


def start_instance(ground: Ground, container: Mapping[str, Any], log: Path) -> Instance:
    """Start an instance of a function with some custom container."""
    info_read, info_write = os.pipe()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*_arguments(ground, info_write), *container["command"]],
            pass_fds=(info_write,),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            cwd="/",
        )
    os.close(info_write)
    with os.fdopen(info_read) as info:
        pid = int(json.loads(info.read())["child-pid"])
    return Instance(process, pid, int(container["port"]))


def _arguments(ground: Ground, info: int) -> list[str]:
    home = ground.environment / "home"
    seeds = [
        part for name in home_files(ground.environment) for part in ("--ro-bind", str(home / name), f"{HOME}/{name}")
    ]
    return [
        ground.view.bwrap[-1],
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--new-session", "--clearenv"),
        *("--cap-drop", "ALL", *(part for name in KEPT.split() for part in ("--cap-add", f"CAP_{name}"))),
        *(part for name in (*FOLDERS, "/opt/sandmesh") for part in ("--perms", "0755", "--dir", name)),
        *ground.view.system,
        *ground.view.interpreter.binds,
        *("--proc", "/proc", "--dev", "/dev"),
        *(part for path in ("/tmp", "/dev/shm", HOME, WORKSPACE) for part in ("--perms", "0755", "--tmpfs", path)),
        *("--ro-bind", str(ground.environment), ENVIRONMENT, *seeds),
        *("--ro-bind", str(ground.agent), AGENT, "--ro-bind", str(ground.mcp), MCP),
        *("--die-with-parent", "--info-fd", str(info), "--chdir", WORKSPACE, "--as-pid-1", "--"),
        *(str(ground.view.interpreter.executable), "-I", "-S", AGENT, "--container", "/run/sandmesh/agent"),
    ]


def _connect_in(pid: int, port: int) -> socket.socket:
    """Connect to a port of another network namespace: sockets stay in the one that they were made in."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(other, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            made = socket.socket()
            made.settimeout(5)
            try:
                made.connect(("127.0.0.1", port))
            except BaseException:
                made.close()
                raise
            made.setblocking(False)
            return made
        finally:
            os.close(other)
    finally:
        libc.setns(own, CLONE_NEWNET)
        os.close(own)
