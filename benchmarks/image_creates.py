"""`python -m benchmarks.image_creates [COUNT] [--image NAME]`: sandboxes with an image beside `base` ones, in turns.

COUNT creates of each (40) with a first cell, one of `base`, then one of the image, and so on: once with a pause before
each, in which spares are prepared, and once in a mesh that prepares none. The ratio of the medians of one run counts:
both have the same machine and the same load. Without NAME the image is the machine's busybox.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import statistics
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, spread
from benchmarks.meshes import running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync

COUNT: Final = 40
WARM: Final = 3
"""Creates of each before the first that counts: pulls, builds and zygotes are no part of it."""
PAUSE_SECONDS: Final = 0.6
AIM: Final = "at most 1.5 times of base"


async def image_creates(count: int, image: str) -> list[Figure]:
    """Return the table: seconds of a create with its first cell, and the ratio, with and without spares."""
    found: list[Figure] = []
    for what, pause, spares in (("prepared ahead", PAUSE_SECONDS, "2"), ("none prepared", 0.0, "0")):
        async with running_mesh(environment={"SANDMESH_BUBBLEWRAP_SPARES": spares}) as mesh:
            await _in_turns(mesh.address, image, WARM, PAUSE_SECONDS)
            base, other = await _in_turns(mesh.address, image, count, pause)
        ratio = statistics.median(other) / statistics.median(base)
        found += [Figure(f"base, {what}", spread(base)), Figure(f"image, {what}", spread(other))]
        found.append(Figure(f"ratio of the medians, {what}", f"{ratio:.2f}", AIM))
    return found


async def _in_turns(address: str, image: str, count: int, pause: float) -> tuple[list[float], list[float]]:
    base: list[float] = []
    other: list[float] = []
    for _ in range(count):
        for found, name in ((base, ""), (other, image)):
            await asyncio.sleep(pause)
            found.append(await _create(address, name))
    return base, other


async def _create(address: str, image: str) -> float:
    begun = time.perf_counter()
    async with BaseSandboxAsync(base_url=address, image=image or None) as box:
        await box.run_ipython_cell("1+1")
        return time.perf_counter() - begun


def _busybox(folder: Path) -> str:
    """Write the tar of a root with the machine's busybox; return its name as an image."""
    program = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    path = folder / "root.tar"
    with tarfile.open(path, "w") as archive:
        file = tarfile.TarInfo("bin/busybox")
        file.size, file.mode = len(program), 0o755
        archive.addfile(file, io.BytesIO(program))
    return f"tar:{path}"


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.image_creates", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help=f"creates of each ({COUNT})")
    parser.add_argument("--image", default="", help="an image; without it, one of busybox is made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as folder:
        image = options.image or _busybox(Path(folder))
        found = asyncio.run(image_creates(options.count, image))
    show(found, f"Creates with an image beside base ({machine()})", as_markdown=options.markdown)


if __name__ == "__main__":
    main()
