"""Make the tables of clients' methods in the doors' pages: `python -m tests.mesh.doors.door_pages [CLIENT...]`.

Each program of `examples/` runs by itself, with the packages that the tests use, at the doors of meshes of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.door_tables import Calls, merged, replaced, table

from tests.environments import environment_of
from tests.mesh.doors.e2b.e2b_world import World, open_world

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS: Final = 900


@dataclass(frozen=True)
class Client:
    """A client: what is installed, and the programs that call its methods."""

    page: str
    requirements: tuple[str, ...]
    programs: tuple[str, ...]
    named: tuple[str, ...] = ()
    """Programs that want names for ports."""

    @property
    def versions(self) -> str:
        """What the table says that it was made with: what the page is about, and no packages beside it."""
        return " and ".join(requirement.replace("==", " ") for requirement in self.requirements if "==" in requirement)


CLIENTS: Final = {
    "e2b": Client(
        "e2b.md",
        ("e2b==2.63.0", "e2b-code-interpreter==2.11.5"),
        (
            *("e2b/sandbox.py", "e2b/interpreter.py", "e2b/pauses.py", "e2b/templates.py"),
            *("e2b/refusals.py", "e2b/newest.py", "e2b/volumes.py", "e2b/rest.py"),
        ),
        ("e2b/gateway.py",),
    ),
    "agentscope": Client(
        "agentscope.md",
        ("agentscope-runtime==1.1.6.post2",),
        ("agentscope/runtime.py", "agentscope/rest.py", "agentscope/training.py"),
    ),
    "swerex": Client("swerex.md", ("swe-rex==1.4.0", "aiohttp"), ("swerex/runtime.py",)),
    "sandboxfusion": Client("sandboxfusion.md", ("sandbox-fusion==0.3.7",), ("sandboxfusion/run.py",)),
}


async def calls_of(client: str, program: str, world: World) -> Calls:
    """Run a program, and return what each method did."""
    python = await asyncio.to_thread(environment_of, *CLIENTS[client].requirements, with_own=False)
    key, endpoint = await world.key(f"{client}-{Path(program).stem}"), world.url.partition("://")
    variables = {
        **world.mesh.e2b,
        **dict.fromkeys(("E2B_API_KEY", "BEARER_TOKEN", "TOKEN"), key),
        "BASE_URL": world.url,
        "ENDPOINT": f"{endpoint[0]}://x:{key}@{endpoint[2]}",
        "LANGUAGES": "python bash",
        "TERM": "dumb",
    }
    command = [str(python), str(ROOT / "scripts" / "door_calls.py"), client, str(ROOT / "examples" / program)]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables}, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    if process.returncode != 0:
        raise SystemExit(f"{program} ended with {process.returncode}")
    sys.stderr.write(f"{program}\n")
    return [(str(owner), str(name), str(did)) for owner, name, did in json.loads(out)]


async def write_page(client: str, worlds: tuple[World, World]) -> None:
    """Run a client's programs, and write its table."""
    one = CLIENTS[client]
    found = [
        await calls_of(client, program, world)
        for world, programs in zip(worlds, (one.programs, one.named), strict=True)
        for program in programs
    ]
    page = ROOT / "docs" / one.page
    page.write_text(replaced(page.read_text(), table(merged(found), one.versions)))


async def main(clients: list[str]) -> None:
    """Write the pages of clients."""
    doors = {"agentscope": True, "swerex": True, "sandboxfusion": True}
    async with open_world(**doors) as world, open_world(e2b_domain="mesh.localhost") as named:
        for client in clients:
            await write_page(client, (world, named))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(CLIENTS)))
