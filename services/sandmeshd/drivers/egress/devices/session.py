"""One connection of an adb client inside a sandbox: what its device serves passes, all else is refused.

The client inside talks the protocol of adb's server. Requests about the server or other devices are answered here or
refused, since the host's server is the administrator's: with it one reaches every device, and ports of the host.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sandmeshd.drivers.egress.devices.adb_server import AdbConnection, AdbFailed, AdbServer, framed, read_framed
from sandmeshd.drivers.egress.streams import ProxyStream
from sandmeshd.drivers.egress.upstream.tunnels import tunnel

_SERVICES: Final = ("shell:", "shell,", "exec:", "sync:", "abb:", "abb_exec:", "framebuffer:", "logcat:")
"""What of the device passes. `reverse:` and `tcp:` lead to ports, `tcpip:` and `usb:` change how it is attached."""
_PLAIN: Final = frozenset({"host:version", "host:host-features"})
_OF_DEVICE: Final = ("features", "get-state", "get-serialno", "get-devpath")
_TRANSPORT_ID_BYTES: Final = 8


class DeviceRefused(Exception):
    """A request is not for the holder of a device."""


class _Reader:
    """The bytes of a stream, in exact counts."""

    def __init__(self, stream: ProxyStream) -> None:
        self._stream = stream
        self.rest = b""

    async def readexactly(self, count: int) -> bytes:
        """Return so many bytes.

        Raises:
            EOFError: There are fewer.
        """
        while len(self.rest) < count:
            data = await self._stream.read()
            if not data:
                raise EOFError
            self.rest += data
        found, self.rest = self.rest[:count], self.rest[count:]
        return found


class DeviceSession:
    """The requests of one connection about the device `serial`."""

    def __init__(self, stream: ProxyStream, server: AdbServer, serial: str, idle_seconds: float) -> None:
        self._stream = stream
        self._server = server
        self._serial = serial
        self._idle_seconds = idle_seconds
        self._reader = _Reader(stream)

    async def serve(self) -> None:
        """Serve the connection to its end."""
        try:
            await self._serve((await read_framed(self._reader)).decode("utf-8", "replace"))
        except (AdbFailed, DeviceRefused) as failure:
            with suppress(OSError):
                await self._stream.write(b"FAIL" + framed(str(failure).encode()))
                await self._stream.end()
        except (OSError, EOFError):
            await self._stream.reset()

    async def _serve(self, request: str) -> None:
        if request in ("host:devices", "host:devices-l"):
            await self._answer(await self._list())
        elif switch := self._transport(request):
            await self._open(switch)
        else:
            await self._answer(await self._server.query(self._query(request)))

    async def _answer(self, message: bytes) -> None:
        await self._stream.write(b"OKAY" + framed(message))
        await self._stream.end()

    async def _list(self) -> bytes:
        state = await self._server.query(f"host-serial:{self._serial}:get-state")
        return f"{self._serial}\t{state.decode()}\n".encode()

    def _transport(self, request: str) -> str:
        """Return the server's request that switches a connection to the device; "" for any other request."""
        for prefix, named in (("host:transport", ":"), ("host:tport:", "serial:")):
            rest = request.removeprefix(prefix)
            if rest != request and not request.startswith("host:transport-id"):
                ours = rest in {f"{named}{self._serial}", "any", "usb", "local", "-any", "-usb", "-local"}
                if not ours:
                    raise DeviceRefused(f"this is not this sandbox's device, which is '{self._serial}'")
                return f"{prefix}{named}{self._serial}"
        return ""

    def _query(self, request: str) -> str:
        if request in _PLAIN:
            return request
        selectors = ("host:", "host-any:", "host-usb:", "host-local:", self._own)
        prefix = next((selector for selector in selectors if request.startswith(selector)), "")
        what = request.removeprefix(prefix)
        if prefix and what in _OF_DEVICE:
            return f"{self._own}{what}"
        if request.startswith("host-serial:"):
            raise DeviceRefused(f"this is not this sandbox's device, which is '{self._serial}'")
        raise DeviceRefused(
            f"a sandbox's adb does not do {request.partition(' ')[0][:100]!r}: it reaches only its device"
        )

    @property
    def _own(self) -> str:
        return f"host-serial:{self._serial}:"

    async def _open(self, switch: str) -> None:
        """Switch to the device and carry the bytes of one of its services."""
        connection = await self._server.connect()
        try:
            await connection.ask(switch.encode())
            number = b"" if "transport" in switch else await connection.reader.readexactly(_TRANSPORT_ID_BYTES)
            await self._stream.write(b"OKAY" + number)
            await self._carry(connection)
        finally:
            connection.writer.close()

    async def _carry(self, connection: AdbConnection) -> None:
        service = await read_framed(self._reader)
        if not service.startswith(tuple(one.encode() for one in _SERVICES)):
            name = service.decode("utf-8", "replace").partition(":")[0][:100]
            raise DeviceRefused(f"the service {name!r} of the device is not for sandboxes: shell, exec and sync are")
        await connection.ask(service)
        await self._stream.write(b"OKAY")
        outside = (connection.reader, connection.writer)
        await tunnel(self._stream, outside, self._reader.rest, self._idle_seconds, _nothing)


def _nothing(data: bytes) -> None:
    del data
