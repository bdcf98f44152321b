"""Times to the first command by ComputeSDK's client, as its published benchmark takes them.

`python -m benchmarks.computesdk [COUNT]`: its client for E2B creates COUNT sandboxes (100) of a mesh on this machine
one by one, then 200 ms apart, then all together, runs `node -v` in each, and a table is printed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mesh.doors.e2b.e2b_world import open_world
from tests.npm import install

from benchmarks.report import machine

NODE: Final = Path(__file__).resolve().parents[1] / "examples" / "integrations" / "node"
PROGRAM: Final = "computesdk_tti.mjs"


async def measure(folder: Path, count: int) -> int:
    """Run the program on a mesh of this process, with all that it prints; return its exit code."""
    async with open_world() as world:
        environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key("computesdk")}
        program = await asyncio.create_subprocess_exec("node", str(folder / PROGRAM), str(count), env=environment)
        return await program.wait()


def main() -> None:
    """Measure, and print the machine."""
    count = int(sys.argv[1]) if sys.argv[1:] else 100
    node = subprocess.run(
        [shutil.which("node") or "node", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="sm-") as made:
        folder = Path(made) / "node"
        shutil.copytree(NODE, folder, ignore=shutil.ignore_patterns("node_modules"))
        install(folder, "npm")
        code = asyncio.run(measure(folder, count))
    print(f"{machine()}, Node {node}")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
