"""`sandmesh top`: nodes, sandboxes, one sandbox's events and use, and keys that act on it.

It is made with rich, which the commands have anyway and which draws one table in 80 columns. Textual would be another
dependency, for widgets that this does not use.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from sandmesh.errors import InvalidArgument, PermissionDenied, SandmeshError
from sandmesh.mesh import MeshAsync
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.top.keys import TerminalKeys
from sandmeshd.cli.top.uses import SECONDS, read_uses
from sandmeshd.cli.top.view import BY_USE, EVENTS, Action, TopState, render
from sandmeshd.facades.refusals import refused_hosts

commands = typer.Typer(rich_markup_mode=None)

_MOVES: Final = {"j": 1, "k": -1, "J": 10, "K": -10}
_REFUSALS: Final = 200
"""How many of a sandbox's newest events are searched for refused hosts."""
_PART_OF_TIME: Final = 10
"""A mesh whose listing takes long is asked less often: for one part in so many of the time."""


@commands.command(epilog="Examples: sandmesh top | sandmesh top --interval 5 | ssh -t host sandmesh top")
@grouped
def top(
    connection: ConnectionOptions,
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds between two looks at the mesh.", metavar="SECONDS")
    ] = 2.0,
) -> None:
    """Show a mesh as it changes: nodes, sandboxes, and the events of the one that is selected.

    Keys: arrows move, o orders, also by use, s opens a shell, p pauses and resumes, x kills, a allows a refused host, u
    shows its use, c its calls, q quits. To ask for use or calls is a use of a sandbox.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fix = "use `sandmesh ls` and `sandmesh events`, which scripts can read, or ssh -t"
        raise InvalidArgument(f"top needs a terminal: {fix}", {"fix": fix})
    run_command(_run(connection, interval))


async def _run(connection: ConnectionOptions, interval: float) -> None:
    async with connection.mesh() as mesh:
        await TopScreen(mesh, connection, interval).run()


class TopScreen:
    """The screen, what keeps it up to date, and what the keys do."""

    def __init__(self, mesh: MeshAsync, connection: ConnectionOptions, interval: float) -> None:
        self._mesh = mesh
        self._connection = connection
        self._interval = interval
        self._state = TopState(connection.require_address())
        self._console = Console()
        self._keyboard = TerminalKeys()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._by_use = asyncio.Event()

    async def run(self) -> None:
        """Run until q is pressed."""
        await self._look()
        looking = asyncio.create_task(self._look_forever())
        asking = asyncio.create_task(self._ask_uses())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        try:
            with self._keyboard.reading(), self._live:
                self._draw()
                while (key := await self._next_key(looking)) != "q":
                    await self._press(key)
                    self._draw()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            for task in (looking, asking):
                task.cancel()
            await asyncio.wait([looking, asking])

    async def _next_key(self, looking: asyncio.Task[None]) -> str:
        """Wait for a key; what ends the looks at the mesh ends the command."""
        waiting = asyncio.ensure_future(self._keyboard.pressed.get())
        await asyncio.wait([waiting, looking], return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            waiting.cancel()
            looking.result()
        return await waiting

    async def _look_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._look()
            except SandmeshError as error:
                self._state.message = f"{error.reason} {error.message}"
            self._draw()
            await asyncio.sleep(max(self._interval, _PART_OF_TIME * (loop.time() - began)))

    async def _ask_uses(self) -> None:
        """Ask sandboxes what they use for as long as they are ordered by it."""
        while True:
            await self._by_use.wait()
            self._state.uses = await read_uses(
                self._state.sandboxes, partial(self._connection.sandbox, timeout=SECONDS)
            )
            self._draw()
            await asyncio.sleep(SECONDS)

    async def _look(self) -> None:
        state = self._state
        state.sandboxes = await self._mesh.sandboxes.list()
        try:
            state.capacity, state.health = await self._mesh.capacity(), await self._mesh.health()
        except PermissionDenied:
            state.health = None
        chosen = state.chosen
        if chosen is not None:
            state.selected = state.selected or chosen.sandbox_id
            state.events = await self._mesh.events.list(chosen.sandbox_id, limit=EVENTS)

    def _draw(self) -> None:
        if self._live.is_started:
            size = self._console.size
            self._live.update(render(self._state, size.width, size.height), refresh=True)

    async def _press(self, key: str) -> None:
        state = self._state
        asks, state.asks, state.message = state.asks, None, ""
        offers, state.offers = state.offers, ()
        if key in _MOVES:
            state.move(_MOVES[key])
        elif key == "o":
            state.next_order()
            (self._by_use.set if state.order == BY_USE else self._by_use.clear)()
        elif key == "y" and asks is not None:
            await self._attempt(asks)
        elif key == "a" and offers[1:]:
            self._offer(offers[1:])
        elif (chosen := state.chosen) is not None:
            self._choose(key, chosen.sandbox_id, paused=chosen.state == "PAUSED")
            if key in ("s", "p", "u", "a", "c") and state.asks is not None:
                action, state.asks = state.asks, None
                await self._attempt(action)
        await self._attempt(self._look)

    def _choose(self, key: str, sandbox_id: str, *, paused: bool) -> None:
        """Set what a key does to the selected sandbox; a kill is asked about."""
        sandboxes = self._mesh.sandboxes
        change = sandboxes.resume if paused else sandboxes.pause
        actions: dict[str, Action] = {
            "s": partial(self._shell, sandbox_id),
            "p": partial(change, sandbox_id),
            "u": partial(self._use, sandbox_id),
            "a": partial(self._find_refusals, sandbox_id),
            "c": partial(self._calls, sandbox_id),
            "x": partial(sandboxes.kill, sandbox_id),
        }
        self._state.asks = actions.get(key)
        if key == "x":
            self._state.message = f"Kill {sandbox_id}? y kills it, any other key does not."

    async def _find_refusals(self, sandbox_id: str) -> None:
        network, events = self._mesh.sandboxes.network(sandbox_id), self._mesh.events
        granted = set((await network.show()).grant.hosts)
        refused = refused_hosts(await events.list(sandbox_id, limit=_REFUSALS))
        self._offer([(sandbox_id, host) for host in refused if host not in granted])
        if not self._state.offers:
            self._state.message = f"{sandbox_id} was refused no host that it may not reach now."

    def _offer(self, offers: Sequence[tuple[str, str]]) -> None:
        """Ask whether the first of these may be reached."""
        self._state.offers = offers
        for sandbox_id, host in offers[:1]:
            self._state.asks = partial(self._allow, sandbox_id, host)
            further = ", a is the next" if offers[1:] else ""
            self._state.message = f"Allow {host}? y allows it from now on{further}"

    async def _allow(self, sandbox_id: str, host: str) -> None:
        await self._mesh.sandboxes.network(sandbox_id).allow(host)
        self._state.message = f"{host} is allowed from now on."

    async def _attempt(self, action: Action) -> None:
        try:
            await action()
        except SandmeshError as error:
            self._state.message = f"{error.reason} {error.message}"

    async def _use(self, sandbox_id: str) -> None:
        async with self._connection.sandbox(sandbox_id, self._interval + 10) as box:
            self._state.stats = await box.stats()

    async def _calls(self, sandbox_id: str) -> None:
        if self._state.calls is not None:
            self._state.calls = None
            return
        async with self._connection.sandbox(sandbox_id, self._interval + 10) as box:
            self._state.calls = await box.list_calls()

    async def _shell(self, sandbox_id: str) -> None:
        self._live.stop()
        with self._keyboard.released():
            command = (sys.executable, "-m", "sandmeshd.cli.user", "shell", sandbox_id)
            shown = {"SANDMESH_TOKEN": self._connection.token} if self._connection.token else {}
            environment = {**os.environ, **shown, "SANDMESH_ADDRESS": self._state.address}
            process = await asyncio.create_subprocess_exec(*command, env=environment)
            code = await process.wait()
        self._live.start()
        self._state.message = f"The shell ended with exit code {code}."
