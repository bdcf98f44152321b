"""A shell of `sandmesh.integrations.swe_rex`: bash with a terminal, whose prompt says how the last command ended."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sandmesh import ProcessAsync, SandboxAsync
from sandmesh.events import Output
from sandmesh.integrations.versions import framework

with framework("swe-rex"):
    from swerex.exceptions import CommandTimeoutError, SessionDoesNotExistError
    from swerex.runtime.abstract import BashAction, BashInterruptAction, BashObservation

_CONTROL: Final = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")
_TERMINAL: Final = (24, 4096)
_READY_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2
# A sourced file keeps what it sets; the prompt is set again after it, and says how it ended.
_RUN: Final = " . {file}; __sandmesh_prompt\n"
_PROMPT: Final = """\
stty -echo; bind 'set enable-bracketed-paste off' 2>/dev/null
__sandmesh_prompt() {{ local code=$?; PS1='<<{mark}:$?>>' PS2= PS0= PROMPT_COMMAND=; return $code; }}
__sandmesh_prompt; printf '<<{mark}-up>>\\n'
"""


class BashSession:
    """A shell with a terminal, and what it wrote that was not yet returned."""

    def __init__(self, process: ProcessAsync) -> None:
        self._process = process
        self._mark = f"sandmesh-{secrets.token_hex(6)}"
        self._prompt = rf"<<{self._mark}:(\d+)>>"
        self._written = bytearray()
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, box: SandboxAsync) -> BashSession:
        """Start a shell; it is to be prepared."""
        return cls(await box.processes.start(["bash", "--noediting"], pty=_TERMINAL, env={"TERM": "dumb"}))

    async def prepare(self, sources: Sequence[str], seconds: float) -> str:
        """Set the prompt and read files; return what these wrote."""
        await self._process.write(_PROMPT.format(mark=self._mark))
        # The terminal may echo the line itself, whose end has no line break before it.
        await self._expect([rf"<<{self._mark}-up>>\r?\n"], _READY_SECONDS)
        await self._expect([self._prompt], _READY_SECONDS)
        if not sources:
            return ""
        await self._process.write(f" {' ; '.join(sources)}; __sandmesh_prompt\n")
        return _clean((await self._expect([self._prompt], seconds))[0])

    async def run(self, action: BashAction, file: str) -> BashObservation:
        """Run a command from its file, to the next prompt."""
        await self._process.write(_RUN.format(file=file))
        patterns = [self._prompt, *map(re.escape, action.expect)]
        before, found = await self._expect(patterns, action.timeout, action.command)
        code = int(found[1]) if found.lastindex and action.check != "ignore" else None
        return BashObservation(output=_clean(before), exit_code=code, expect_string=self._shown(found))

    async def converse(self, action: BashAction) -> BashObservation:
        """Type a line into an interactive program, and wait for what is expected or for the shell's prompt."""
        await self._process.write(f"{action.command}\n")
        patterns = [self._prompt, *map(re.escape, action.expect)]
        before, found = await self._expect(patterns, action.timeout, action.command)
        output = _clean(before)
        if action.is_interactive_quit:
            await self._process.write(" stty -echo; __sandmesh_prompt\n")
            await self._expect([self._prompt], _READY_SECONDS)
        else:
            output = output.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=self._shown(found))

    async def interrupt(self, action: BashInterruptAction) -> BashObservation:
        """Send what Ctrl-C does, until the prompt is back."""
        patterns = [self._prompt, *map(re.escape, action.expect)]
        for _ in range(action.n_retry):
            await self._process.write(b"\x03")
            with suppress(CommandTimeoutError):
                before, found = await self._expect(patterns, action.timeout + _RETRY_SECONDS)
                return BashObservation(output=_clean(before).strip(), exit_code=0, expect_string=self._shown(found))
        raise CommandTimeoutError(f"the command ignored {action.n_retry} interrupts: close the session")

    async def close(self) -> None:
        """End the shell and what runs in its terminal."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._process.kill()
        await self._process.__aexit__(None, None, None)

    def _shown(self, found: re.Match[str]) -> str:
        return self._mark if found.lastindex else found[0]

    async def _expect(
        self, patterns: Sequence[str], seconds: float | None, command: str = ""
    ) -> tuple[str, re.Match[str]]:
        pattern = re.compile("|".join(patterns))
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    text = self._written.decode(errors="backslashreplace")
                    if found := pattern.search(text):
                        self._written[:] = text[found.end() :].encode()
                        return text[: found.start()], found
                    if self._reader.done():
                        raise SessionDoesNotExistError(f"the shell ended; its last output: {_clean(text)[-2000:]!r}")
                    await self._news.wait()
        except TimeoutError:
            shown = f" while running command {command!r}" if command else ""
            raise CommandTimeoutError(f"timeout after {seconds} seconds{shown}") from None

    async def _read(self) -> None:
        try:
            async for event in self._process:
                if isinstance(event, Output):
                    self._written += event.data
                    self._news.set()
        finally:
            asyncio.get_running_loop().call_soon(self._news.set)


def _clean(text: str) -> str:
    return _CONTROL.sub("", text).replace("\r\n", "\n")
