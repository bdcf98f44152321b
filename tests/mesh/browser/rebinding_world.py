"""A hostile site whose name moves to the loopback after its page was loaded, and a sandbox that opens it.

`unshare --net --mount python -m tests.mesh.browser.rebinding_world` prints what the page got, as JSON: it has a network
and a name server of its own, which no other program of the machine sees.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from sandmesh import BrowserSandboxAsync
from tests.mesh.conftest import run_mesh

NAME = "rebind.test"
SITE = "10.9.9.9"
"""A private address, which a sandbox reaches whose grant has the name; a name never leads it to a loopback."""
MOVED = ("127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "127.9.9.9")  # noqa: S104 - what names resolve to
TEMPLATE = "description: A browser and a desktop\nimage: sandmesh-browser\nextends: gui\n"
PAGE = "<title>Innocent</title><p>Read me for a while"
ATTACK = """async () => {
  const seen = {};
  for (const path of ['/', '/json/version', '/json/list', '/devtools/browser'])
    try {
      const answer = await fetch(path, {cache: 'no-store'});
      seen[path] = `${answer.status} ${await answer.text()}`;
    } catch (error) { seen[path] = String(error) }
  seen.socket = await new Promise(done => {
    const socket = new WebSocket(`ws://${location.host}/`);
    socket.onopen = () => done('open');
    socket.onerror = () => done('refused');
  });
  return seen;
}"""


class NameServer(asyncio.DatagramProtocol):
    """Answers each question with one address, which may be kept for no time."""

    def __init__(self) -> None:
        self.address = SITE
        self.queries = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a question (RFC 1035)."""
        end = data.index(b"\0", 12) + 1
        (kind,) = struct.unpack_from(">H", data, end)
        known = data[12:end] == b"".join(bytes([len(part)]) + part.encode() for part in [*NAME.split("."), ""])
        found = ipaddress.ip_address(self.address)
        has = known and kind == (1 if found.version == 4 else 28)
        self.queries += known
        head = data[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, has, 0, 0)
        record = struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(found.packed)) + found.packed if has else b""
        assert self._transport is not None
        self._transport.sendto(head + data[12 : end + 4] + record, addr)


class Site:
    """Servers that count their requests: the hostile one, and those that the page is after on the node's loopback."""

    def __init__(self) -> None:
        self.served = 0
        self.reached = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with the page."""
        self.served += 1
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + PAGE.encode())
        writer.close()

    async def note(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note that somebody came."""
        self.reached += 1
        writer.close()


def enter() -> None:
    """Have a network of one interface, and names from the name server here."""
    for command in ("ip link set lo up", f"ip address add {SITE}/32 dev lo"):
        subprocess.run(command.split(), check=True)
    # What is mounted stays when its own name is gone.
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        for name, text in (
            ("resolv.conf", "nameserver 127.0.0.1\noptions attempts:1\n"),
            ("nsswitch.conf", "hosts: dns\n"),
        ):
            source = Path(folder, name)
            source.write_text(text)
            subprocess.run(["/bin/mount", "--bind", str(source), str(Path("/etc", name).resolve())], check=True)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open a sandbox with a browser and a desktop that both run."""
    template = folder / "both.yaml"
    template.write_text(TEMPLATE)
    async with (
        run_mesh(templates=(template,)) as mesh,
        BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120, template="both", network=[NAME]) as box,
    ):
        for tool in ("browser_tab_list", "take_screenshot"):
            answer = await box.call_tool(tool, {})
            assert not answer.is_error, answer.text
        yield box


async def ports(box: BrowserSandboxAsync) -> list[int]:
    """Return the ports that anything in a sandbox listens at."""
    tables = (await box.run_shell_command("cat /proc/net/tcp /proc/net/tcp6")).text
    rows = [line.split() for line in tables.splitlines()]
    return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"})


async def attack(folder: Path) -> dict[str, Any]:
    """Open the site at each port that listens inside, move its name, and have the page ask again."""
    loop, site, names = asyncio.get_running_loop(), Site(), NameServer()
    await loop.create_datagram_endpoint(lambda: names, ("127.0.0.1", 53))
    got: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(opened(folder))
        inside = await ports(box)
        await box.network.set([f"{NAME}:{port}" for port in (80, *inside)])
        for port in (80, *inside):
            for address, serve in ((SITE, site.serve), ("127.0.0.1", site.note), ("127.9.9.9", site.note)):
                await stack.enter_async_context(await asyncio.start_server(serve, address, port))
            await stack.enter_async_context(await asyncio.start_server(site.note, "::1", port))
            names.address = SITE
            shown = await box.browser_navigate(f"http://{NAME}:{port}/")
            assert "Innocent" in shown.text, shown.text
            for names.address in MOVED:
                answers = (await box.browser_evaluate(ATTACK)).structured
                assert answers is not None
                got.update(" ".join(answer.split()[:1]) for answer in answers["result"].values())
        alive = (await box.run_shell_command("echo alive")).text.strip()
    return {"ports": len(inside), "got": got, "reached": site.reached, "queries": names.queries, "agent": alive}


if __name__ == "__main__":
    enter()
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        json.dump(asyncio.run(attack(Path(name))), sys.stdout)
