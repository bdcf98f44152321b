"""The same calls by each way to a mesh, in turns within one run: its unix socket, a link to it, TCP and TLS."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import TASKS, TURN_SECONDS, Figure, box_of, timed
from benchmarks.meshes import RunningMesh, running_mesh
from sandmesh import BaseSandboxAsync
from sandmeshd.runtime.certificates import FILES, issue_certificate, write_certificate

ROUNDS = 8
SLICES = 10
CALLS = 5
"""At a time, in each slice: what else the machine does meets all ways alike."""
SANDBOXES = 4
TOKEN = "for-the-benchmark"  # noqa: S105 - of a mesh that ends with it
UNIX = "unix socket"


@dataclass
class Way:
    """One way to a mesh: boxes that take it, and what was measured with them."""

    name: str
    boxes: list[BaseSandboxAsync]
    seconds: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])

    async def latency(self) -> None:
        """Measure calls one after another."""
        self.seconds += [await timed(self.boxes[0].run_ipython_cell("1+1")) for _ in range(CALLS)]

    async def rate(self) -> None:
        """Measure the calls a second of many callers, and the client's processor time for each."""
        started, used = time.perf_counter(), time.process_time()
        end = started + TURN_SECONDS
        done = sum(await asyncio.gather(*(self._until(end, number) for number in range(TASKS))))
        self.processor.append((time.process_time() - used) / done)
        self.rates.append(done / (time.perf_counter() - started))

    async def _until(self, end: float, number: int) -> int:
        box, done = self.boxes[number % len(self.boxes)], 0
        while time.perf_counter() < end:
            await box.run_ipython_cell("1+1")
            done += 1
        return done

    def figures(self, unix: Way) -> list[Figure]:
        """Return its lines, as multiples of the unix socket's."""
        call, rate, processor = map(statistics.median, (self.seconds, self.rates, self.processor))
        latency, least = call / statistics.median(unix.seconds), _least(self.seconds) / _least(unix.seconds)
        share = statistics.median(unix.rates) / rate
        cost = processor / statistics.median(unix.processor)
        return [
            Figure(
                f'{self.name}: run_ipython_cell("1+1")', f"p50 {call * 1e3:.2f} ms, {latency:.2f} times", "1.4 times"
            ),
            Figure("  the fastest tenth", f"up to {_least(self.seconds) * 1e3:.2f} ms, {least:.2f} times"),
            Figure(
                f"  calls a second of {TASKS} tasks",
                f"{rate:,.0f}: the socket makes {share:.2f} times as many",
                "1.4 times",
            ),
            Figure("  the client's processor time for a call", f"{processor * 1e6:.0f} us, {cost:.2f} times"),
        ]


def _least(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 10]


@asynccontextmanager
async def _tls(folder: Path) -> AsyncGenerator[RunningMesh]:
    paths = {kind: folder / name for kind, name in FILES.items()}
    await asyncio.to_thread(write_certificate, issue_certificate(("127.0.0.1",), 1), paths)
    environment = {
        "SANDMESH_TLS_CERT": str(folder / "cert.pem"),
        "SANDMESH_TLS_KEY": str(folder / "key.pem"),
        "SANDMESH_BEARER_TOKEN": TOKEN,
    }
    async with running_mesh(environment=environment, listen="127.0.0.1:0") as mesh:
        yield mesh


async def transports() -> list[Figure]:
    """Measure all ways in turns."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain = await stack.enter_async_context(running_mesh(listen="127.0.0.1:0"))
        secured = await stack.enter_async_context(_tls(folder))
        link = folder / "link"
        link.symlink_to(plain.address.removeprefix("unix://"))

        async def open_way(name: str, mesh: RunningMesh, address: str, token: str | None = None) -> Way:
            owners = [await stack.enter_async_context(box_of(mesh)) for _ in range(SANDBOXES)]
            ca = folder / "ca.pem" if address.startswith("grpcs") else None
            made = [
                BaseSandboxAsync(owner.sandbox_id, base_url=address, bearer_token=token, ca_cert=ca) for owner in owners
            ]
            return Way(name, [await stack.enter_async_context(box) for box in made])

        unix = await open_way(UNIX, plain, plain.address)
        ways = [
            unix,
            await open_way("a symbolic link to it", plain, f"unix://{link}"),
            await open_way("TCP", plain, f"grpc://{plain.tcp}"),
            await open_way("TLS and a token", secured, f"grpcs://{secured.tcp}", TOKEN),
        ]
        for _ in range(ROUNDS):
            for _ in range(SLICES):
                for way in ways:
                    await way.latency()
            for way in ways:
                await way.rate()
    return [line for way in ways for line in way.figures(unix)]
