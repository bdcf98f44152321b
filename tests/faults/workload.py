"""Clients that create, call and release all the time, and the account of what they met."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError


@dataclass(frozen=True)
class Cycle:
    """One client's create, call and release: when, and what it ended with."""

    began: float
    created: float | None
    ended: float
    error: str = ""
    detail: str = ""

    @property
    def was_created(self) -> bool:
        """Whether the sandbox was had."""
        return self.created is not None


@dataclass
class Account:
    """Everything that the clients met."""

    cycles: list[Cycle] = field(default_factory=list[Cycle])
    wrong: list[str] = field(default_factory=list[str])
    """Output that differs from what was printed, and errors that are not of the mesh's documented ones."""
    handed_out: Counter[str] = field(default_factory=Counter[str])
    """How many cycles had each sandbox: more than one is a sandbox that was handed out twice."""
    checked: int = 0
    """Outputs that came whole and were compared with what was printed."""

    def errors(self) -> Counter[str]:
        """Count the errors by class."""
        return Counter(cycle.error for cycle in self.cycles if cycle.error)

    def creates(self, windows: list[tuple[float, float]]) -> tuple[int, int]:
        """Count the creates that met no fault window, and how many of them succeeded."""
        clear = self.in_the_clear(windows)
        return len(clear), sum(cycle.was_created for cycle in clear)

    def in_the_clear(self, windows: list[tuple[float, float]]) -> list[Cycle]:
        """Return the cycles whose create met no fault window."""
        return [cycle for cycle in self.cycles if not _meets(cycle, windows)]


def _meets(cycle: Cycle, windows: list[tuple[float, float]]) -> bool:
    until = cycle.created if cycle.created is not None else cycle.ended
    return any(begin <= until and cycle.began <= end for begin, end in windows)


class Workload:
    """Clients in this process, each a task with a gateway of its own choice."""

    def __init__(self, addresses: Callable[[int], str], lines: int = 2000) -> None:
        self.account = Account()
        self._addresses = addresses
        self._lines = lines

    async def run(self, clients: int, cycles: int, until: asyncio.Event | None = None, pause: float = 0.0) -> None:
        """Run `cycles` cycles in all in `clients` tasks, or fewer if `until` is set before.

        Each begins its cycles at least `pause` seconds apart.
        """
        left = iter(range(cycles))
        await asyncio.gather(*(self._client(number, left, until, pause) for number in range(clients)))

    async def _client(self, number: int, left: object, until: asyncio.Event | None, pause: float) -> None:
        address = self._addresses(number)
        while next(left, None) is not None and not (until is not None and until.is_set()):  # type: ignore[call-overload]
            begins_next = time.monotonic() + pause
            await self._cycle(address)
            await asyncio.sleep(max(0.0, begins_next - time.monotonic()))

    async def _cycle(self, address: str) -> None:
        began, created, error, detail = time.monotonic(), None, "", ""
        box = BaseSandboxAsync(base_url=address, timeout=30)
        try:
            await box.start()
            created = time.monotonic()
            self.account.handed_out[box.sandbox_id] += 1
            await self._use(box)
        except SandmeshError as failed:
            error, detail = type(failed).__name__, str(failed)
        except Exception as failed:
            error = type(failed).__name__
            self.account.wrong.append(f"an undocumented error: {failed!r}")
        finally:
            error = await self._close(box) or error
        self.account.cycles.append(Cycle(began, created, time.monotonic(), error, detail[:300]))

    async def _close(self, box: BaseSandboxAsync) -> str:
        try:
            await box.close()
        except SandmeshError as failed:
            return type(failed).__name__
        return ""

    async def _use(self, box: BaseSandboxAsync) -> None:
        word = secrets.token_hex(8)
        said = await box.run_ipython_cell(f"word = '{word}'; print(word)")
        if said.stdout.strip() != word and not said.is_error:
            self.account.wrong.append(f"a cell printed {said.stdout!r}, not {word}")
        # A `seq` that a fault killed would leave the bare loop nothing to do, which is no error to a shell.
        result = await box.run_shell_command(
            f"numbers=$(seq {self._lines}) && for i in $numbers; do echo {word}-$i; done"
        )
        expected = "".join(f"{word}-{number}\n" for number in range(1, self._lines + 1))
        self.account.checked += not result.is_error
        if not result.is_error and _digest(result.stdout) != _digest(expected):
            self.account.wrong.append(f"{len(result.stdout)} characters came of {len(expected)}, or other ones")
        again = await box.run_ipython_cell("print(word)")
        if again.stdout.strip() != word and not again.is_error:
            self.account.wrong.append(f"the kernel had forgotten {word}: {again.stdout!r}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
