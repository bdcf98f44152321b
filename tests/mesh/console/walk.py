"""A walk through the console on a mesh with many sandboxes, while others are created and killed.

`python -m tests.mesh.console.walk` starts a mesh with 500 sandboxes of three templates, creates and kills further ones,
opens the console in Chromium, and prints when its first view was there, how long after a create or a kill a person sees
it, and what an open console costs the process of the mesh's services (its gateway with the rest), in turns with a
closed one.
`--record FOLDER` also writes a video of the walk and pictures, which docs/console.md shows; that needs ffmpeg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from benchmarks.meshes import RunningMesh, running_mesh
from benchmarks.profiles import spent
from benchmarks.report import machine, show
from playwright.async_api import Browser, Page, async_playwright, expect

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.builtin import async_class
from tests.mesh.console.person import CHROMIUM, DESK, PHONE, typed

TEMPLATES: Final = ("base", "filesystem", "browser")
PACE_SECONDS: Final = 0.2
"""Between two creates of the storm; each is killed LIFE_SECONDS later."""
LIFE_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 2.0
SLOW: Final = 60_000
BUSY: Final = """import time
held = []
while True:
    held.append(bytearray(1 << 20))
    sum(range(2000000))
    time.sleep(0.3)
"""
WATCH: Final = """() => {
  window.seen = {};
  const look = () => {
    const now = performance.timeOrigin + performance.now(), shown = {};
    for (const row of document.querySelectorAll('tbody tr')) {
      shown[row.querySelector('td[data-name=Sandbox] > a')?.textContent] = row.querySelector('.state')?.textContent;
    }
    for (const id of Object.keys(shown)) (window.seen[id] ??= {}).come ??= now;
    for (const [id, one] of Object.entries(window.seen)) {
      if (!['pending', 'starting', 'ready'].includes(shown[id])) one.gone ??= now;
    }
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
  look();
}"""
"""Notes when a person sees each sandbox, and when as one that is ending or gone."""


@dataclass
class Storm:
    """Sandboxes that are created and killed, and when that was done, in milliseconds since 1970."""

    address: str
    made: dict[str, float] = field(default_factory=dict[str, float])
    killed: dict[str, float] = field(default_factory=dict[str, float])
    failures: list[SandmeshError] = field(default_factory=list[SandmeshError])
    _lives: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def run(self) -> None:
        """Create and kill until cancelled."""
        try:
            for template in cycle(TEMPLATES):
                life = asyncio.create_task(self._live(template))
                self._lives.add(life)
                life.add_done_callback(self._lives.discard)
                await asyncio.sleep(PACE_SECONDS)
        finally:
            await asyncio.gather(*self._lives, return_exceptions=True)

    async def _live(self, template: str) -> None:
        try:
            await self._create_and_kill(template)
        except SandmeshError as error:
            # A machine that is busy with other work may refuse: what was not created is not looked for.
            self.failures.append(error)

    async def _create_and_kill(self, template: str) -> None:
        async with async_class(template)(base_url=self.address, labels={"job": "storm"}) as box:
            sandbox_id = box.sandbox_id or ""
            self.made[sandbox_id] = time.time() * 1000
            await asyncio.sleep(LIFE_SECONDS)
            self.killed[sandbox_id] = time.time() * 1000


@asynccontextmanager
async def storming(address: str) -> AsyncGenerator[Storm]:
    """Run a storm until the block ends."""
    storm = Storm(address)
    task = asyncio.create_task(storm.run())
    try:
        yield storm
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass(frozen=True)
class ServedConsole:
    """A console that `sandmesh console` serves."""

    process: asyncio.subprocess.Process

    async def link(self) -> str:
        """Return the next link that it prints."""
        assert self.process.stdout is not None
        return str(json.loads(await self.process.stdout.readline())["url"])


@asynccontextmanager
async def served(address: str) -> AsyncGenerator[ServedConsole]:
    """Serve a console in a process of its own, as a person does."""
    command = (sys.executable, "-m", "sandmeshd.cli.user", "console", "-o", "json", "--base-url", address)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield ServedConsole(process)
    finally:
        process.terminate()
        await process.wait()


@dataclass(frozen=True)
class Delays:
    """Seconds after which a person saw creates and kills, and what was never seen."""

    creates: Sequence[float]
    kills: Sequence[float]
    unseen: int


async def delays(page: Page, storm: Storm, begun: float) -> Delays:
    """Compare what was done since a moment with when a page showed it."""
    seen: dict[str, dict[str, float]] = await page.evaluate("window.seen")
    made = {one: at for one, at in storm.made.items() if at > begun and one in storm.killed}
    creates = [(seen[one]["come"] - at) / 1000 for one, at in made.items() if "come" in seen.get(one, {})]
    kills = [(seen[one]["gone"] - storm.killed[one]) / 1000 for one in made if "gone" in seen.get(one, {})]
    unseen = sum("gone" not in seen.get(one, {}) for one in made)
    return Delays([max(0.0, one) for one in creates], [max(0.0, one) for one in kills], unseen)


@dataclass(frozen=True)
class Shares:
    """The part of a processor that the mesh's services use, with a closed console and with an open one, by turn."""

    closed: Sequence[float]
    opened: Sequence[float]

    @property
    def difference(self) -> float:
        """What an open console adds: the median over the turns."""
        return statistics.median(one - other for one, other in zip(self.opened, self.closed, strict=True))


async def shares(mesh: RunningMesh, page: Page, turns: int, seconds: float) -> Shares:
    """Measure in turns; a page that is elsewhere is a closed console."""
    origin = page.url.partition("#")[0]
    found: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * turns):
        # ABBA: what drifts is in both.
        is_open = turn % 4 in (1, 2)
        await page.goto(f"{origin}#/" if is_open else "about:blank")
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = spent(mesh.pid).seconds, time.monotonic()
        await asyncio.sleep(seconds)
        found[is_open].append((spent(mesh.pid).seconds - before) / (time.monotonic() - began))
    await page.goto(f"{origin}#/")
    return Shares(found[False], found[True])


async def fill(mesh: MeshAsync, count: int) -> list[BaseSandboxAsync]:
    """Create sandboxes of each template, and return them; they end with the mesh."""
    kept: list[BaseSandboxAsync] = []
    for at, template in enumerate(TEMPLATES):
        share = count // len(TEMPLATES) + (at < count % len(TEMPLATES))
        async for item in mesh.create_many(share, template, job="evaluation", on_error="raise"):
            assert item.sandbox is not None
            kept.append(item.sandbox)
    return kept


async def first_view(browser: Browser, link: str) -> tuple[Page, float]:
    """Open a link; return the page, and the seconds until the list was there."""
    context = await browser.new_context(viewport={"width": DESK[0], "height": DESK[1]})
    page = await context.new_page()
    began = time.monotonic()
    await page.goto(link)
    await page.locator("td[data-name=Sandbox]").first.wait_for(timeout=SLOW)
    return page, time.monotonic() - began


async def walk(count: int, turns: int, seconds: float, folder: Path | None) -> list[Figure]:
    """Walk, and return what was measured."""
    limits = {"SANDMESH_MAX_SANDBOXES": str(count + 100)}
    async with (
        running_mesh(environment=limits) as mesh,
        MeshAsync(mesh.address) as client,
        served(mesh.address) as console,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        boxes = await fill(client, count)
        page, quiet_view = await first_view(browser, await console.link())
        quiet = await shares(mesh, page, turns, seconds)
        async with storming(mesh.address) as storm:
            await asyncio.sleep(SETTLE_SECONDS)
            began = time.monotonic()
            await page.reload()
            await page.locator("td[data-name=Sandbox]").first.wait_for(timeout=SLOW)
            view = time.monotonic() - began
            await page.evaluate(WATCH)
            begun, own = time.time() * 1000, spent(console.process.pid).seconds
            await asyncio.sleep(2 * seconds)
            found = await delays(page, storm, begun)
            served_share = (spent(console.process.pid).seconds - own) / (2 * seconds)
            stormy = await shares(mesh, page, turns, seconds)
            if folder is not None:
                await record(page, client, mesh.address, folder)
        assert len(boxes) == count
        return [
            Figure(f"first view of {count} sandboxes, quiet", f"{quiet_view:.2f} s", "1 s"),
            Figure("  while others are created and killed", f"{view:.2f} s", "1 s"),
            Figure(f"a create is seen, of {len(found.creates)}", _spread(found.creates), "1 s"),
            Figure(f"a kill is seen, of {len(found.kills)}", _spread(found.kills), "1 s"),
            Figure("  not seen", str(found.unseen), "0"),
            Figure("  creates and kills that failed", str(len(storm.failures)), "0"),
            Figure("the services' processor share, quiet, console closed", _share(statistics.median(quiet.closed)), ""),
            Figure("  what an open console adds", _share(quiet.difference), "2 %"),
            Figure("the same, in the storm, console closed", _share(statistics.median(stormy.closed)), ""),
            Figure("  what an open console adds", _share(stormy.difference), "2 %"),
            Figure("`sandmesh console` itself, in the storm", _share(served_share), ""),
        ]


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} s, at most {ordered[-1]:.2f} s" if ordered else "none"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


class Video:
    """Pictures of a page several times a second, and what ffmpeg makes of them."""

    FRAMES: Final = 5

    def __init__(self, page: Page, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._count = 0

    async def take(self) -> None:
        """Take pictures until cancelled."""
        while True:
            due = asyncio.create_task(asyncio.sleep(1 / self.FRAMES))
            path = self._folder / f"{self._count:05}.jpg"
            await self._page.screenshot(path=path, type="jpeg", quality=90)
            self._count += 1
            await due

    def write(self, path: Path) -> None:
        """Write the video."""
        program = shutil.which("ffmpeg") or "ffmpeg"
        pictures = ("-framerate", str(self.FRAMES), "-i", str(self._folder / "%05d.jpg"))
        form = ("-vf", "scale=1080:-2", "-c:v", "libvpx-vp9", "-crf", "44", "-b:v", "0", "-pix_fmt", "yuv420p")
        subprocess.run([program, "-loglevel", "error", "-y", *pictures, *form, str(path)], check=True)


async def record(page: Page, client: MeshAsync, address: str, folder: Path) -> None:
    """Walk as a person does, and write the video and the pictures."""
    boxes = [info for info in await client.sandboxes.list() if info.labels.get("job") == "evaluation"]
    async with async_class("base")(base_url=address, labels={"job": "walk"}) as box:
        await box.run_ipython_cell("sum(range(100))")
        await box.run_shell_command("curl -s http://packages.example; echo done > notes.txt")
        await box.run_ipython_cell("1 / 0")
        await box.processes.start(["python3", "-c", BUSY])
        await box.stats()
        place = f"sandbox/{box.sandbox_id}"
        with tempfile.TemporaryDirectory() as kept:
            video = Video(page, Path(kept))
            taking = asyncio.create_task(video.take())
            await stroll(page, box.sandbox_id or "", boxes[0].sandbox_id)
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking
            await asyncio.to_thread(video.write, folder / "console.webm")
        origin = page.url.partition("#")[0]
        assert page.context.browser is not None
        state = await page.context.storage_state()
        for size in (DESK, PHONE):
            for scheme in ("light", "dark"):
                context = await page.context.browser.new_context(
                    viewport={"width": size[0], "height": size[1]},
                    color_scheme=scheme,
                    storage_state=state,
                )
                shown = await context.new_page()
                for name, path in (("list", ""), ("timeline", f"{place}/timeline"), ("usage", f"{place}/usage")):
                    await shown.goto(f"{origin}#/{path}")
                    await expect(shown.locator(".loading")).to_have_count(0, timeout=SLOW)
                    await asyncio.sleep(SETTLE_SECONDS)
                    await shown.screenshot(path=folder / f"console-{name}-{size[0]}-{scheme}.png")
                await context.close()


async def stroll(page: Page, mine: str, other: str) -> None:
    """Go through the views at the speed of a person who looks."""
    await page.evaluate("location.hash = '#/'")
    await asyncio.sleep(4)
    await page.get_by_label("Filter").press_sequentially("job=walk", delay=80)
    await asyncio.sleep(1)
    await page.get_by_role("link", name=mine).click()
    await asyncio.sleep(3)
    tabs = page.locator(".tabs")
    await tabs.get_by_role("link", name="Usage").click()
    await asyncio.sleep(6)
    await tabs.get_by_role("link", name="Terminal").click()
    await expect(page.locator(".xterm-rows")).to_contain_text("$", timeout=SLOW)
    await typed(page, "ls -l; python3 -c 'print(6 * 7)'")
    await asyncio.sleep(2)
    await tabs.get_by_role("link", name="Files").click()
    await page.get_by_role("button", name="notes.txt", exact=True).click()
    await asyncio.sleep(2)
    await page.evaluate("hash => { location.hash = hash }", f"#/sandbox/{other}/timeline")
    await asyncio.sleep(2)
    await page.get_by_role("button", name=f"Kill {other}").click()
    await asyncio.sleep(1)
    await page.get_by_role("button", name="Kill it").click()
    await asyncio.sleep(3)
    for view in ("Mesh", "Events", "Sandboxes"):
        await page.get_by_role("navigation").get_by_role("link", name=view).click()
        await asyncio.sleep(2)


def main() -> None:
    """Walk and print the table."""
    parser = argparse.ArgumentParser("python -m tests.mesh.console.walk", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the table as a page has it")
    parser.add_argument("--sandboxes", type=int, default=500, help="how many there are")
    parser.add_argument("--turns", type=int, default=6, help="how often the console is open and closed")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each turn lasts")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="where the video and the pictures are written")
    options = parser.parse_args()
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
    found = asyncio.run(walk(options.sandboxes, options.turns, options.seconds, options.record))
    show(found, f"The console: {machine()}", as_markdown=options.markdown)


if __name__ == "__main__":
    main()
