"""Clients that pause, wake, fork, mark, rewind and try overlays all the time, while everything is killed."""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable

from sandmesh import BaseSandboxAsync
from tests.faults.workload import Workload

Step = Callable[[BaseSandboxAsync, str], Awaitable[None]]
FORK_SECONDS = 15.0
"""What a fork leaves where its deletion met a fault ends soon after that by itself."""
SHOW = "print(open('word').read(), word)"


class StateWorkload(Workload):
    """Each cycle writes a word to a file and a variable, and takes two steps that must keep or restore both."""

    async def _use(self, box: BaseSandboxAsync) -> None:
        word = secrets.token_hex(8)
        await box.fs.write("word", word)
        await box.run_ipython_cell(f"word = '{word}'")
        steps: list[Step] = [self._pause, self._fork, self._fork_kernel, self._rewind, self._overlay]
        for step in random.sample(steps, 2):
            await step(box, word)
            await self._check(box, word, step.__name__)

    async def _check(self, box: BaseSandboxAsync, word: str, step: str, *, of_kernel: bool = True) -> None:
        code = SHOW if of_kernel else "print(open('word').read())"
        said = await box.run_ipython_cell(code)
        self.account.checked += not said.is_error
        if not said.is_error and said.stdout.split() != [word] * (1 + of_kernel):
            self.account.wrong.append(f"after {step} there was {said.stdout!r}, not {word}")

    async def _pause(self, box: BaseSandboxAsync, word: str) -> None:
        await box.pause()

    async def _fork(self, box: BaseSandboxAsync, word: str) -> None:
        forks = await box.fork(2, timeout=FORK_SECONDS)
        try:
            for fork in forks:
                self.account.handed_out[fork.sandbox_id] += 1
                await self._check(fork, word, "a fork", of_kernel=not _lacks_kernels(forks.not_copied))
                await fork.fs.write("word", "of the fork")
                await fork.run_ipython_cell("word = 'of the fork'")
        finally:
            for fork in forks:
                await self._close(fork)

    async def _fork_kernel(self, box: BaseSandboxAsync, word: str) -> None:
        for kernel in await box.kernels.fork(2):
            said = await kernel.run(SHOW + "; word = 'of the fork'")
            if not said.is_error and said.stdout.split() != [word] * 2:
                self.account.wrong.append(f"a kernel's fork said {said.stdout!r}, not {word}")
            await kernel.delete()

    async def _rewind(self, box: BaseSandboxAsync, word: str) -> None:
        mark = await box.mark()
        for _ in range(2):
            await box.fs.write("word", "another")
            await box.run_ipython_cell("word = 'another'")
            await box.rewind(mark)
            await self._check(box, word, "a rewind")
        await box.drop(mark)

    async def _overlay(self, box: BaseSandboxAsync, word: str) -> None:
        async with box.overlay() as branch:
            self.account.handed_out[branch.sandbox_id] += 1
            await self._check(branch, word, "an overlay", of_kernel=False)
            await branch.fs.write("word", "of-the-overlay")
            await branch.commit()
            await self._check(box, "of-the-overlay", "a commit", of_kernel=False)
        await box.fs.write("word", word)


def _lacks_kernels(not_copied: tuple[str, ...]) -> bool:
    return any("kernel" in name for name in not_copied)
