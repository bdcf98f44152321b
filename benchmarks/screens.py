"""Measure browsers and desktops, in turns with an empty gRPC call, and print a table.

With SANDMESH_DRIVER=docker on an engine that has the images of `browser` and `gui`; NAMES choose some of the lines.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

from benchmarks.containers import processes_of
from benchmarks.figures import Figure, timed
from benchmarks.meshes import RunningMesh, pool_is_full, proportional_bytes, running_mesh
from benchmarks.report import arguments, machine, show
from benchmarks.rfb import viewing
from benchmarks.yardstick import EmptyCall, empty_calls
from sandmesh import BrowserSandboxAsync, GuiSandboxAsync

ROUNDS = 7
SNAPSHOTS = 30
KEYS = 40
AT_ONCE = 10
WATCH_SECONDS = 5.0
SETTLE_SECONDS = 3.0
STEPS = ("create", "file", "page", "screenshot")
PAGE = "file:///workspace/page.html"
NODES = "".join(f"<li><a href='#{n}'>Entry {n}</a></li>" for n in range(500))
"""With its list items and links an accessibility tree of 1,000 nodes."""
MOVING = """<!DOCTYPE html><body style="margin:0"><canvas id=c width=900 height=600></canvas><script>
const pen = c.getContext('2d');
requestAnimationFrame(function draw(t) {
  pen.fillStyle = `hsl(${t / 10 % 360} 70% 60%)`; pen.fillRect(0, 0, 900, 600);
  pen.fillStyle = '#000'; pen.fillRect(t / 3 % 900, 200, 80, 80); requestAnimationFrame(draw);
});</script>"""
CHROMIUM = ("/usr/lib/chromium/chromium", "--no-sandbox", "--no-first-run", "--user-data-dir=/tmp/chromium")


def browser_of(mesh: RunningMesh) -> BrowserSandboxAsync:
    """Return a sandbox with a browser, not started."""
    return BrowserSandboxAsync(base_url=mesh.address, timeout=300)


async def first_picture(box: BrowserSandboxAsync) -> list[float]:
    """Start a box, open a page of its own, and take a screenshot; return the seconds of each of `STEPS`."""
    at = [time.perf_counter()]
    await box.start()
    at.append(time.perf_counter())
    await box.fs.write("page.html", "<title>Page</title><p>Hello</p>")
    at.append(time.perf_counter())
    opened = await box.browser_navigate(PAGE)
    at.append(time.perf_counter())
    shown = await box.browser_take_screenshot()
    at.append(time.perf_counter())
    if opened.is_error or not shown.images:
        raise RuntimeError(opened.text + shown.text)
    return [after - before for before, after in pairwise(at)]


async def _starts(mesh: RunningMesh, empty: EmptyCall, *, pooled: bool) -> list[Figure]:
    taken: list[list[float]] = []
    units: list[float] = []
    for _ in range(ROUNDS):
        if pooled:
            await pool_is_full(mesh, "browser", 1)
            await _warm(mesh)
        units += [await timed(empty()) for _ in range(20)]
        box = browser_of(mesh)
        try:
            taken.append(await first_picture(box))
        finally:
            await box.close()
    what, aim = ("from a pool", "0.1 s") if pooled else ("cold create", "3 s" if mesh.in_docker else "2.5 s")
    whole = [sum(one) for one in taken]
    text = f"p50 {statistics.median(whole):.2f} s, at most {max(whole):.2f} s"
    parts = [
        f"{step} {statistics.median(one) * 1e3:.0f}" for step, one in zip(STEPS, zip(*taken, strict=True), strict=True)
    ]
    return [
        Figure(f"{what} -> first screenshot of a local page", text, aim),
        Figure("  its steps, p50 in ms", ", ".join(parts)),
        _unit(units),
    ]


async def _cold(mesh: RunningMesh, empty: EmptyCall) -> list[Figure]:
    return await _starts(mesh, empty, pooled=False)


async def _pooled(mesh: RunningMesh, empty: EmptyCall) -> list[Figure]:
    return await _starts(mesh, empty, pooled=True)


async def _warm(mesh: RunningMesh) -> None:
    """Wait until the browser of the pooled sandbox has been warmed up: it runs, and did nothing for a second."""
    async with asyncio.timeout(120):
        before = -1
        while not (browser := await _browser_ticks(mesh)) or browser != before:
            before = browser
            await asyncio.sleep(1)


async def _browser_ticks(mesh: RunningMesh) -> int:
    """Return the processor time of a mesh's browsers; 0 where none runs."""
    return sum(_ticks(pid) for pid in await processes_of(mesh) if _name(pid).startswith("chromium"))


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _unit(units: Sequence[float]) -> Figure:
    return Figure("  an empty gRPC call, in turns with it", f"p50 {statistics.median(units) * 1e3:.2f} ms")


async def _snapshots(mesh: RunningMesh, empty: EmptyCall) -> list[Figure]:
    taken: list[float] = []
    units: list[float] = []
    async with browser_of(mesh) as box:
        await box.fs.write("page.html", f"<ul>{NODES}</ul>")
        await box.browser_navigate(PAGE)
        for _ in range(SNAPSHOTS):
            units.append(await timed(empty()))
            taken.append(await timed(box.browser_snapshot()))
    text = f"p50 {statistics.median(taken) * 1e3:.1f} ms, at most {max(taken) * 1e3:.1f} ms"
    return [Figure("browser_snapshot of a page of 1,000 nodes", text, "60 ms"), _unit(units)]


async def _memory(mesh: RunningMesh, _: EmptyCall) -> list[Figure]:
    async with browser_of(mesh) as box:
        await box.list_tools()
        await asyncio.sleep(SETTLE_SECONDS)
        idle = proportional_bytes(await processes_of(mesh))
        await box.browser_navigate("about:blank")
        await box.browser_tab_list()
        await asyncio.sleep(SETTLE_SECONDS)
        browser = proportional_bytes(await processes_of(mesh)) - idle
    async with GuiSandboxAsync(base_url=mesh.address, timeout=300) as box:
        await box.list_tools()
        await asyncio.sleep(SETTLE_SECONDS)
        idle = proportional_bytes(await processes_of(mesh))
        await box.desktop.info()
        await asyncio.sleep(SETTLE_SECONDS)
        desktop = proportional_bytes(await processes_of(mesh)) - idle
    return [
        Figure("memory that a browser with a blank page adds (PSS)", f"{browser / 1e6:.0f} MB", "400 MB"),
        Figure("memory that a desktop adds (PSS)", f"{desktop / 1e6:.0f} MB", "90 MB"),
    ]


async def _view(mesh: RunningMesh, empty: EmptyCall) -> list[Figure]:
    async with GuiSandboxAsync(base_url=mesh.address, timeout=300) as box:
        await box.desktop.launch("xterm", "-fullscreen")
        await _opened(box, "xterm")
        await box.computer_use("left_click", [400, 300])
        units: list[float] = []
        keys: list[float] = []
        async with viewing(await box.desktop.url()) as viewer:
            for number in range(KEYS):
                units.append(await timed(empty()))
                keys.append(await viewer.key_to_pixel("abcdefghij"[number % 10]))
        await box.fs.write("moving.html", MOVING)
        await box.desktop.launch(*CHROMIUM, "--app=file:///workspace/moving.html")
        await _opened(box, "moving.html")
        async with viewing(await box.desktop.url()) as viewer:
            frames, began = 0, time.perf_counter()
            while time.perf_counter() - began < WATCH_SECONDS:
                await viewer.update()
                frames += 1
            rate = frames / (time.perf_counter() - began)
    text = f"p50 {statistics.median(keys) * 1e3:.1f} ms, at most {max(keys) * 1e3:.1f} ms"
    return [
        Figure("live view: frames a second of a moving page", f"{rate:.0f}", "30"),
        Figure("live view: keystroke to pixel on loopback", text, "100 ms"),
        _unit(units),
    ]


async def _opened(box: GuiSandboxAsync, title: str) -> None:
    async with asyncio.timeout(60):
        while not any(title in window.title for window in await box.desktop.windows()):
            pass


async def _at_once(mesh: RunningMesh, _: EmptyCall) -> list[Figure]:
    async with AsyncExitStack() as stack:
        boxes = [browser_of(mesh) for _ in range(AT_ONCE)]
        for box in boxes:
            stack.push_async_callback(box.close)
        seconds = await timed(asyncio.gather(*(first_picture(box) for box in boxes)))
    return [Figure(f"{AT_ONCE} browsers at once, all with a screenshot", f"{seconds:.1f} s", "20 s")]


Bench = Callable[[RunningMesh, EmptyCall], Awaitable[list[Figure]]]
PLAIN: Mapping[str, Bench] = {
    "cold": _cold,
    "snapshots": _snapshots,
    "memory": _memory,
    "view": _view,
    "at_once": _at_once,
}
POOLED: Mapping[str, Bench] = {"pool": _pooled}
NAMES = (*PLAIN, *POOLED)


async def screens(names: set[str]) -> list[Figure]:
    """Measure what is named, each kind of mesh once."""
    found: list[Figure] = []
    async with empty_calls() as empty:
        for benches, pools in ((PLAIN, {}), (POOLED, {"browser": 1})):
            chosen = [bench for name, bench in benches.items() if name in names]
            if chosen:
                async with running_mesh(pools) as mesh:
                    for bench in chosen:
                        found += await bench(mesh, empty)
    return found


def main() -> None:
    """Print the table of the benchmarks that the arguments name, or all."""
    parser = arguments("benchmarks.screens", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args()
    if unknown := sorted({*options.names} - {*NAMES}):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(NAMES)}")
    title = machine()
    show(asyncio.run(screens(set(options.names or NAMES))), title, as_markdown=options.markdown)


if __name__ == "__main__":
    main()
