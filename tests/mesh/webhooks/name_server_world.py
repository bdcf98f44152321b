"""Two endpoints of webhooks, the name of one of which a name server never answers: `unshare --mount` runs this.

What it prints is how many deliveries to it had ended when those to the other one had.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from aiohttp import web

from sandmesh.mesh.webhooks import new_secret
from sandmeshd.facades.webhooks.endpoint import DeliveryError, open_endpoint
from sandmeshd.facades.webhooks.hooks import Hook

SERVER = "127.0.0.77"
MANY = 64


async def accept(_: web.Request) -> web.Response:
    """Accept an event."""
    return web.Response()


async def main(folder: Path) -> None:
    """Deliver to both."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((SERVER, 53))
        server.setblocking(False)
        application = web.Application()
        application.router.add_post("/", accept)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        slow = Hook(name="slow", url="http://nothing-answers.example/", secret=new_secret(), inward=True)
        well = Hook(name="well", url=f"http://localhost:{port}/", secret=new_secret(), inward=True)
        async with open_endpoint(slow) as waits, open_endpoint(well) as works:
            posts = [asyncio.create_task(waits.post({"id": f"{number}"})) for number in range(MANY)]
            # It was asked, so that the threads wait.
            await asyncio.get_running_loop().sock_recv(server, 512)
            for number in range(MANY):
                await works.post({"id": f"{number}"})
            # What else the process does in threads goes on.
            await asyncio.to_thread(folder.stat)
            print(sum(post.done() for post in posts), flush=True)  # noqa: T201 - the caller reads it
            found = await asyncio.gather(*posts, return_exceptions=True)
            assert all(isinstance(each, DeliveryError) for each in found), found
        await runner.cleanup()


if __name__ == "__main__":
    chosen = Path(sys.argv[1])
    configuration = chosen / "resolv.conf"
    configuration.write_text(f"nameserver {SERVER}\n")
    subprocess.run(["mount", "--bind", str(configuration), "/etc/resolv.conf"], check=True)  # noqa: S607
    asyncio.run(main(chosen))
