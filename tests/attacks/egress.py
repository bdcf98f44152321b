"""Ways out of a sandbox where the node itself needs a proxy, by what that proxy is asked for."""

from __future__ import annotations

import asyncio
from typing import Final

from sandmeshd.drivers.egress.upstream.outlets import ThroughProxy
from tests.attacks.tally import Tally
from tests.unit.drivers.egress.harness import Names, Program, serving

PUBLIC: Final = "93.184.216.34"
_PLACES: Final = (
    *("127.0.0.1", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::1]", "[::]"),  # noqa: S104 - asked for, not bound
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "172.16.0.1"),
    *("192.168.1.1", "100.64.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]", "[fd00:ec2::254]", "localhost"),
    *("LOCALHOST", "localhost.", "metadata.google.internal", "inner.test", "INNER.test.", "meta.test", "mixed.test"),
    *("xn--local-host", "127。0。0。1", "①②⑦.0.0.1", "%31%32%37.0.0.1", "api.test@127.0.0.1", "127.0.0.1#api.test"),
    *("127.0.0.1\\@api.test", "api.test\t", "api.test.evil.test", "evilapi.test", "api.test%00.evil"),
)
_FORMS: Final = (
    "CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n",
    "CONNECT {host}:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
    "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "GET http://{host}/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
)


async def leave(tally: Tally) -> None:
    """Ask for each place in each form, with one host granted and with all public ones."""
    asked: list[str] = []

    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode(errors="replace"))
        writer.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(parent) as port:
        for public in (False, True):
            for host in _PLACES:
                for form in _FORMS:
                    asked.clear()
                    outlet = ThroughProxy(f"http://127.0.0.1:{port}", "")
                    program = Program(_names(), outlet=outlet, grant=["api.test:443", "api.test:80"], public=public)
                    await program.ask(form.format(host=host).encode())
                    # The proxy gets the address that was checked, or the name that was granted.
                    reached = [line for line in asked if not line.split(" ")[1].startswith(("api.test:", f"{PUBLIC}:"))]
                    tally.note(f"{form.format(host=host)!r}: {reached}", held=not reached)


def _names() -> Names:
    return Names(
        api_test=[[PUBLIC]],
        mixed_test=[[PUBLIC, "10.0.0.9"]],
        inner_test=[["10.0.0.9"]],
        meta_test=[["169.254.169.254"]],
        localhost=[["127.0.0.1"]],
    )
