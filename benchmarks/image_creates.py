"""`python -m benchmarks.image_creates [COUNT] [--image NAME | --mib N] [--beside PROGRAM]`: sandboxes with an image.

COUNT creates of each (40) with a first cell, one of `base`, then one of the image, and so on: once with a pause before
each, in which spares are prepared, and once in a mesh that prepares none. The ratio of the medians of one run counts:
both have the same machine and the same load. Without NAME the image is the machine's busybox, with N in so many files
of 1 MiB, too. Then ALIVE of each kind live side by side: what each has on disk, and in memory. With `--beside docker`
or `--beside podman`, or both, `PROGRAM run --rm` of the same image runs in turns with creates, after an import.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, spread
from benchmarks.meshes import RunningMesh, processes_below, proportional_bytes, running_mesh
from benchmarks.report import arguments, machine, show
from sandmesh import BaseSandboxAsync
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory

COUNT: Final = 40
WARM: Final = 3
"""Creates of each before the first that counts: pulls, builds and zygotes are no part of it."""
PAUSE_SECONDS: Final = 0.6
ALIVE: Final = 20
AIM: Final = "at most 1.5 times of base"
ENGINE_AIM: Final = "at most a third"
NAME: Final = "sandmesh-benchmark:1"
MIB: Final = 1 << 20


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


async def alive(image: str) -> list[Figure]:
    """Return what each of several has on disk and in memory while all live."""
    found: list[Figure] = []
    for what, name in (("base", ""), ("image", image)):
        async with running_mesh() as mesh, AsyncExitStack() as stack:
            await _create(mesh.address, name)
            before = _held(mesh)
            for _ in range(ALIVE):
                box = await stack.enter_async_context(BaseSandboxAsync(base_url=mesh.address, image=name or None))
                await box.run_ipython_cell("1+1")
            disk, memory = ((now - then) / ALIVE for now, then in zip(_held(mesh), before, strict=True))
            found.append(
                Figure(f"each of {ALIVE}, {what}", f"{disk / MIB:.2f} MiB on disk, {memory / MIB:.1f} of memory")
            )
    return found


def _held(mesh: RunningMesh) -> tuple[int, int]:
    return _disk(mesh), proportional_bytes({mesh.pid, *processes_below(mesh.pid)})


def _disk(mesh: RunningMesh) -> int:
    """Return the bytes that a mesh's sandboxes have on disk."""
    folder = MeshPaths(mesh.mesh_id, default_state_directory(), default_runtime_directory()).sandboxes
    blocks = 0
    for at, _, names in os.walk(folder):
        for name in names:
            blocks += (Path(at) / name).lstat().st_blocks
    return blocks * 512


async def beside(program: str, image: str, tar: Path, count: int) -> list[Figure]:
    """Return the seconds of creates, and of the same image run by an engine's program, in turns."""
    creates: list[float] = []
    runs: list[float] = []
    await asyncio.to_thread(_engine, program, "import", str(tar), NAME)
    try:
        async with running_mesh() as mesh:
            await _in_turns(mesh.address, image, WARM, PAUSE_SECONDS)
            for _ in range(count):
                await asyncio.sleep(PAUSE_SECONDS)
                creates.append(await _create(mesh.address, image))
                begun = time.perf_counter()
                await asyncio.to_thread(_engine, program, "run", "--rm", NAME, "/bin/busybox", "true")
                runs.append(time.perf_counter() - begun)
    finally:
        await asyncio.to_thread(_engine, program, "rmi", NAME)
    ratio = statistics.median(creates) / statistics.median(runs)
    return [
        Figure(f"image, in turns with {program}", spread(creates)),
        Figure(f"{program} run --rm", spread(runs)),
        Figure(f"ratio of the medians, {program}", f"{ratio:.2f}", ENGINE_AIM),
    ]


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


def _engine(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _write_root(path: Path, mib: int) -> None:
    """Write the tar of a root with the machine's busybox, and so many files of 1 MiB."""
    program = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    with tarfile.open(path, "w") as archive:
        files = {"bin/busybox": program, **{f"data/{number}": b"" for number in range(mib)}}
        for name, content in files.items():
            data = content or os.urandom(MIB)
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(data), 0o755
            archive.addfile(file, io.BytesIO(data))


async def _measure(options: argparse.Namespace, tar: Path) -> list[Figure]:
    image = options.image or f"tar:{tar}"
    if not options.image:
        _write_root(tar, options.mib)
    found = await image_creates(options.count, image)
    found += await alive(image)
    for program in options.beside:
        found += await beside(program, image, tar, options.count)
    return found


def main() -> None:
    """Measure and print."""
    parser = arguments("benchmarks.image_creates", __doc__)
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help=f"creates of each ({COUNT})")
    parser.add_argument("--image", default="", help="an image; without it, one of busybox is made")
    parser.add_argument("--mib", type=int, default=0, help="how large that is made, in MiB")
    parser.add_argument(
        "--beside", nargs="*", default=[], choices=["docker", "podman"], help="programs that run it, too"
    )
    options = parser.parse_args()
    if options.image and options.beside:
        parser.error("--beside is for the image that is made here: leave out --image")
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as folder:
        found = asyncio.run(_measure(options, Path(folder, "root.tar")))
    show(found, f"Creates with an image beside base ({machine()})", as_markdown=options.markdown)


if __name__ == "__main__":
    main()
