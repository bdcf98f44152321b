"""A stand-in of an Android device for tests: it speaks the protocol of adbd on a TCP port, and Android is not in it.

The real adb server connects to it as to an emulator. It knows the few commands that the tools run, draws a picture of
the taps, and records what it was told. Its model says that it is a stand-in.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
import shutil
import socket
import struct
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

MODEL = "sandmesh stand-in"
KEYBOARD = "com.android.adbkeyboard/.AdbIME"
LATIN = "com.android.inputmethod.latin/.LatinIME"
KEYS = {"3", "4", "66", "KEYCODE_HOME", "KEYCODE_BACK", "KEYCODE_ENTER", "KEYCODE_TAB", "KEYCODE_WAKEUP"}
WIDTH, HEIGHT = 720, 1280
_HEADER = struct.Struct("<4sIIIII")
_VERSION, _MAX_DATA = 0x01000001, 1 << 18
_RESET_END = "echo sandmesh-reset-done"


class StandIn:
    """A device. `inputs` has what it was told since its last reset, each as the words after `input`."""

    def __init__(self) -> None:
        self.inputs: list[list[str]] = []
        self.typed = ""
        self.resets = 0
        self.keyboards = [LATIN]
        self.keyboard = LATIN
        self.breaks_in_swipe = False
        self.serial = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one adb server."""
        transport = _Transport(self, writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    name, first, second, length, _, _ = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                    transport.take(name, first, second, await reader.readexactly(length))
        finally:
            transport.close()
            writer.close()

    def run(self, command: str) -> tuple[bytes, bytes, int]:
        """Run a command of its shell and return what it writes, to which it adds errors, and the exit code."""
        if command.endswith(_RESET_END):
            self.inputs, self.typed, self.keyboard = [], "", LATIN
            self.resets += 1
            return b"Success\nsandmesh-reset-done\n", b"", 0
        words = shlex.split(command)
        answer = getattr(self, f"_{words[0]}", None) if words else None
        if answer is None:
            return b"", f"/system/bin/sh: {command}: not found\n".encode(), 127
        found: tuple[bytes, bytes, int] = answer(words[1:])
        return found

    def _wm(self, words: list[str]) -> tuple[bytes, bytes, int]:
        assert words == ["size"]
        return f"Physical size: {WIDTH}x{HEIGHT}\n".encode(), b"", 0

    def _getprop(self, words: list[str]) -> tuple[bytes, bytes, int]:
        return (MODEL.encode() if words == ["ro.product.model"] else b"") + b"\n", b"", 0

    def _input(self, words: list[str]) -> tuple[bytes, bytes, int]:
        if words[0] == "keyevent" and words[1] not in KEYS:
            return b"", f"Error: Unknown keycode: {words[1]}\n".encode(), 1
        self.inputs.append(words)
        if words[0] == "text":
            self.typed += words[1].replace("%s", " ")
        elif words[1] in ("KEYCODE_ENTER", "KEYCODE_TAB"):
            self.typed += "\n" if words[1] == "KEYCODE_ENTER" else "\t"
        return b"", b"", 0

    def _ime(self, words: list[str]) -> tuple[bytes, bytes, int]:
        if words[0] == "set":
            self.keyboard = words[1]
        return "".join(f"{name}\n" for name in self.keyboards).encode(), b"", 0

    def _settings(self, words: list[str]) -> tuple[bytes, bytes, int]:
        assert words == ["get", "secure", "default_input_method"]
        return f"{self.keyboard}\n".encode(), b"", 0

    def _am(self, words: list[str]) -> tuple[bytes, bytes, int]:
        assert words[:5] == ["broadcast", "-a", "ADB_INPUT_B64", "--es", "msg"]
        if self.keyboard == KEYBOARD:
            self.typed += base64.b64decode(words[5]).decode()
        return b"Broadcast completed: result=0\n", b"", 0

    def _screencap(self, words: list[str]) -> tuple[bytes, bytes, int]:
        assert words == ["-p"]
        rows = [bytearray(WIDTH) for _ in range(HEIGHT)]
        for _, x, y in (sent for sent in self.inputs if sent[0] == "tap"):
            for row in rows[max(0, int(y) - 9) : int(y) + 10]:
                left, right = max(0, int(x) - 9), min(WIDTH, int(x) + 10)
                row[left:right] = b"\xff" * (right - left)
        return _png(rows), b"", 0


class _Transport:
    """The connection of one adb server, and the streams in it."""

    def __init__(self, device: StandIn, writer: asyncio.StreamWriter) -> None:
        self._device = device
        self._writer = writer
        self._acknowledged: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, name: bytes, first: int, second: int, data: bytes) -> None:
        """Handle a message."""
        if name == b"CNXN":
            about = f"device::ro.product.name=standin;ro.product.model={MODEL};features=shell_v2,cmd"
            self._send(b"CNXN", _VERSION, _MAX_DATA, about.encode())
        elif name == b"OPEN":
            task = asyncio.create_task(self._open(first, data.rstrip(b"\0").decode()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif name == b"OKAY" and second in self._acknowledged:
            self._acknowledged[second].set()

    def close(self) -> None:
        """End all streams."""
        for task in self._tasks:
            task.cancel()

    def _send(self, name: bytes, first: int, second: int, data: bytes = b"") -> None:
        magic = int.from_bytes(name, "little") ^ 0xFFFFFFFF
        self._writer.write(_HEADER.pack(name, first, second, len(data), sum(data), magic) + data)

    async def _open(self, remote: int, service: str) -> None:
        kind, _, command = service.partition(":")
        if kind.split(",")[0] not in ("shell", "exec"):
            self._send(b"CLSE", 0, remote)
            return
        if self._device.breaks_in_swipe and command.startswith("input swipe"):
            self._writer.transport.abort()
            return
        self._acknowledged[remote] = asyncio.Event()
        self._send(b"OKAY", remote, remote)
        out, err, code = self._device.run(command)
        if "v2" in kind.split(","):
            parts = [(1, out), (2, err), (3, bytes([code]))]
            written = b"".join(bytes([number]) + struct.pack("<I", len(part)) + part for number, part in parts if part)
        else:
            written = out + err
        for at in range(0, len(written), 1 << 16):
            self._acknowledged[remote].clear()
            self._send(b"WRTE", remote, remote, written[at : at + (1 << 16)])
            await self._acknowledged[remote].wait()
        self._send(b"CLSE", remote, remote)


def _png(rows: list[bytearray]) -> bytes:
    """Return an image in shades of grey."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    written = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def pixel(png: bytes, x: int, y: int) -> int:
    """Return the shade of a pixel of an image that a stand-in drew."""
    length = int.from_bytes(png[33:37], "big")
    return zlib.decompress(png[41 : 41 + length])[y * (WIDTH + 1) + 1 + x]


@asynccontextmanager
async def run_device() -> AsyncGenerator[StandIn]:
    """Run a stand-in on a free port of the loopback."""
    device = StandIn()
    server = await asyncio.start_server(device.serve, "127.0.0.1", 0)
    device.serial = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield device
    finally:
        server.close()


class HostServer:
    """An adb server as an administrator runs it, with a port and a home of its own."""

    def __init__(self, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self._home = home

    async def adb(self, *words: str) -> str:
        """Run the host's adb client and return what it writes."""
        program = await asyncio.create_subprocess_exec(
            *self._command(*words),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return (await program.communicate())[0].decode()

    async def attach(self, device: StandIn) -> None:
        """Connect a stand-in and wait until the server has it."""
        async with asyncio.timeout(30):
            while f"{device.serial}\tdevice" not in await self.adb("devices"):
                await self.adb("connect", device.serial)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[HostServer]:
        """Run the server."""
        log = (self._home / "adb.log").open("wb")
        program = await asyncio.create_subprocess_exec(
            *self._command("nodaemon", "server"), env=self._environment, stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(30):
                await self._listens()
            yield self
        finally:
            program.kill()
            await program.wait()
            log.close()

    async def _listens(self) -> None:
        # A client asks a server that does not listen yet by starting one, so the port is asked.
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                return

    def _command(self, *words: str) -> list[str]:
        program = shutil.which("adb")
        assert program is not None
        return [program, "-P", str(self._port), *words]

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._home)}
