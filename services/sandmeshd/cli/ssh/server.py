"""An SSH server for one client and one sandbox, on a socket: its sessions are processes of the sandbox.

It runs beside the client, as the user's own process with the user's token: the sandbox needs no SSH server, no key and
no port, and what goes between here and the mesh resumes after a cut as every call does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, Final

import asyncssh
from asyncssh.packet import SSHPacket

from sandmesh import Output, ProcessAsync, SandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.cli.run.terminal import SHELL
from sandmeshd.cli.ssh.keys import SshKeys
from sandmeshd.cli.ssh.sftp import SandboxSftp

CHUNK: Final = 1 << 16
# Programs that images have: the first that is there carries a connection to a port of the sandbox.
_RELAY: Final = """
if command -v socat >/dev/null; then exec socat - "TCP:$1:$2"; fi
if command -v python3 >/dev/null; then exec python3 -c '
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536): s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536):
    while data: data = data[os.write(1, data):]
' "$1" "$2"; fi
if command -v nc >/dev/null; then exec nc "$1" "$2"; fi
exec bash -c 'exec 3<>"/dev/tcp/$1/$2"; cat <&3 & cat >&3; wait' relay "$1" "$2"
"""
_ACCEPTED: Final = ("LANG", "LC_", "COLORTERM", "GIT_", "RSYNC_")
_VERSION: Final = "OpenSSH_sandmesh"
"""OpenSSH's clients tell only servers of its kind when the output of a command is no longer read."""
_WINDOW, _PACKET = 2 << 20, 32 << 10
_NO_AGENT: Final = (
    "your SSH agent is not forwarded, since code in the sandbox could use its keys: use a secret for their hosts\r\n"
)


class SessionChannel(asyncssh.SSHServerChannel[bytes]):
    """The channel of a session, with two requests of OpenSSH's clients; asyncssh finds their handlers by name."""

    output_closed = False
    """Whether the client no longer reads the output."""

    def _process_eow_at_openssh_dot_com_request(self, packet: SSHPacket) -> bool:  # pyright: ignore[reportUnusedFunction]  # by name
        packet.check_end()
        self.output_closed = True
        return True

    def _process_auth_agent_req_at_openssh_dot_com_request(self, packet: SSHPacket) -> None:
        packet.check_end()
        sys.stderr.write(_NO_AGENT)
        sys.stderr.flush()
        self._report_response(False)


class SandboxSshServer(asyncssh.SSHServer):
    """What a client may do: sessions, files and ports of the sandbox; nothing of the sandbox reaches the client's."""

    def __init__(self, box: SandboxAsync) -> None:
        self._box = box

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Note the connection."""
        self._connection = conn

    def session_requested(self) -> Any:
        """Return the channel and the session of a client that opens one."""
        loop = asyncio.get_running_loop()
        # It has a terminal where the client wants one, which is passed on as it is: no editor of lines, and bytes.
        channel = SessionChannel(
            self._connection,
            loop,
            allow_pty=True,
            line_editor=False,
            line_echo=False,
            line_history=0,
            max_line_length=0,
            encoding=None,
            errors="strict",
            window=_WINDOW,
            max_pktsize=_PACKET,
        )

        async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
            await _run_session(self._box, process, channel)

        def sftp(chan: Any) -> SandboxSftp:
            return SandboxSftp(chan, self._box)

        return channel, asyncssh.SSHServerProcess(run, sftp, sftp_version=3, allow_scp=False)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        """Carry a connection of the client to a port inside the sandbox (ssh -L, -W, -D)."""

        async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            command = ["sh", "-c", _RELAY, "relay", dest_host, str(dest_port)]
            # The client sees a connection that closes, as with a port that nothing listens on.
            with suppress(SandmeshError, asyncssh.Error, ConnectionError), closing(writer):
                async with await self._box.processes.start(command) as process:
                    sending = asyncio.create_task(_send(reader, process))
                    try:
                        async for event in process:
                            if isinstance(event, Output) and event.stream == "stdout":
                                writer.write(event.data)
                                await writer.drain()
                    finally:
                        sending.cancel()

        return carry


async def _send(reader: asyncssh.SSHReader[bytes], process: ProcessAsync) -> None:
    with suppress(SandmeshError, asyncssh.Error):
        while data := await reader.read(CHUNK):
            await process.write(data)
        await process.close_stdin()


async def serve(box: SandboxAsync, keys: SshKeys, connection: socket.socket) -> None:
    """Serve one client on a connected socket until it leaves."""

    server = await asyncssh.run_server(
        connection,
        server_factory=lambda: SandboxSshServer(box),
        server_host_keys=[str(keys.host)],
        authorized_client_keys=asyncssh.import_authorized_keys(keys.authorized),
        server_version=_VERSION,
        encoding=None,
        # No key of the user's can be used from inside, and no address of the user's machine be reached.
        agent_forwarding=False,
        x11_forwarding=False,
        password_auth=False,
        kbdint_auth=False,
        gss_host=None,
        compression_algs=None,
        keepalive_interval=0,
    )
    await server.wait_closed()


async def _run_session(box: SandboxAsync, session: asyncssh.SSHServerProcess[bytes], channel: SessionChannel) -> None:
    """Run a command or shell in the sandbox with the session's input and output."""
    kind = session.term_type
    columns, rows, *_ = session.term_size
    env = _variables(session.env) | ({"TERM": kind} if kind else {})
    size = (max(rows, 1), max(columns, 1)) if kind else None
    try:
        async with await box.processes.start(session.command or SHELL, pty=size, env=env) as process:
            receiving = asyncio.create_task(_receive(session, process))
            try:
                async for event in process:
                    if isinstance(event, Output) and channel.output_closed and event.stream != "stderr":
                        # As writing to a closed pipe does; the process may have ended by now.
                        with suppress(SandmeshError):
                            await process.send_signal(signal.SIGPIPE)
                    elif isinstance(event, Output):
                        stream = session.stderr if event.stream == "stderr" else session.stdout
                        stream.write(event.data)
                        await stream.drain()
                done = await process.wait()
            finally:
                receiving.cancel()
    except SandmeshError as error:
        session.stderr.write(f"{error.reason} {error}\n".encode())
        session.exit(255)
        return
    except (asyncssh.Error, ConnectionError):
        return
    if done.exit_code is None and done.signal is not None:
        session.exit_with_signal(signal.Signals(done.signal).name.removeprefix("SIG"))
        return
    session.exit(done.exit_code if done.exit_code is not None else 255)


async def _receive(session: asyncssh.SSHServerProcess[bytes], process: ProcessAsync) -> None:
    """Pass on the client's input, its terminal's size, and signals."""
    while True:
        # A signal that Linux does not know is left out; a process that has ended takes nothing more.
        with suppress(SandmeshError, KeyError):
            try:
                data = await session.stdin.read(CHUNK)
            except asyncssh.TerminalSizeChanged as changed:
                await process.resize(max(changed.height, 1), max(changed.width, 1))
                continue
            except asyncssh.SignalReceived as received:
                await process.send_signal(signal.Signals[f"SIG{received.signal}"])
                continue
            except asyncssh.BreakReceived:
                await process.send_signal(signal.SIGINT)
                continue
            except asyncssh.Error:
                data = b""
            if not data:
                if session.term_type is None:
                    await process.close_stdin()
                else:
                    # A terminal has no end of input: it hangs up when the client leaves.
                    await session.wait_closed()
                    await process.send_signal(signal.SIGHUP)
                return
            await process.write(data)


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_ACCEPTED)}


def standard_streams() -> socket.socket:
    """Return a socket that stands for standard input and output, which OpenSSH gives a ProxyCommand as pipes."""
    own, theirs = socket.socketpair()

    def receive() -> None:
        with suppress(OSError):
            while data := os.read(0, CHUNK * 4):
                theirs.sendall(data)
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_WR)

    def send() -> None:
        with suppress(OSError):
            while data := theirs.recv(CHUNK * 4):
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]

    threading.Thread(target=receive, name="input", daemon=True).start()
    threading.Thread(target=send, name="output", daemon=True).start()
    return own
