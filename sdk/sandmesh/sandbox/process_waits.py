"""Waiting for a process: for its end, for a line of its output, for a port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from sandmesh._calls.feed import Feed
from sandmesh._calls.runner import run_call
from sandmesh._client.messages import read_seconds
from sandmesh._tools import build
from sandmesh._tools.processes import WaitForPort
from sandmesh.errors import DeadlineExceeded, InvalidArgument, WrongState
from sandmesh.events import Output, Result
from sandmesh.sandbox.handle import Attachment

# How much later the sandbox's own deadline is than the caller's, so that the caller learns the reason.
DEADLINE_MARGIN_SECONDS = 5.0
LONGEST_LINE = 64 * 1024
# A terminal also ends lines with a carriage return.
ENDS = re.compile(r"[\r\n]+")


def compile_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Compile a pattern.

    Raises:
        InvalidArgument: It does not compile; the message says where.
    """
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidArgument(f"the pattern {pattern!r} does not compile: {error}", {"argument": "pattern"}) from None


class LineMatcher:
    """Searches each line as it grows, in standard output and standard error separately."""

    def __init__(self, pattern: re.Pattern[str], feed: Feed) -> None:
        self._compiled = pattern
        self.pattern = pattern.pattern
        self._feed = feed
        self._seen = 0
        self._lines = {"stdout": "", "stderr": ""}
        self._match: re.Match[str] | None = None

    def match(self) -> re.Match[str] | None:
        """Return the first match in the output so far, None if there is none."""
        if self._match is None:
            events = self._feed.unread(self._seen)
            self._seen = self._feed.arrived
            for event in events:
                if isinstance(event, Output) and self._match is None:
                    self._search(event)
        return self._match

    def _search(self, event: Output) -> None:
        text = self._lines[event.stream] + event.text
        *whole, rest = ENDS.split(text)
        for line in (*whole, rest):
            self._match = self._compiled.search(line)
            if self._match is not None:
                return
        self._lines[event.stream] = rest[-LONGEST_LINE:]


class WaitableProcess:
    """A process whose end, output and ports can be waited for."""

    def __init__(self, attachment: Callable[[], Attachment], feed: Feed) -> None:
        self._attachment = attachment
        self._feed = feed

    @property
    def id(self) -> str:
        """The id that `box.processes.attach` takes."""
        return self._feed.call_id

    @property
    def result(self) -> Result | None:
        """The result; None while it runs."""
        return self._feed.result

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait for its end and return the result, with its real `exit_code` or the `signal` that ended it.

        Raises:
            DeadlineExceeded: It still runs after `timeout` seconds.
            SandboxLost: Its sandbox ended; the message says how.
        """
        await self._within(timeout, lambda: self._feed.ended, "did not end")
        self._feed.check()
        result = self._feed.result
        if result is None:
            raise WrongState(f"process {self.id} was detached", {"state": "DETACHED"})
        return result

    async def wait_for_exit(self, timeout: float | None = None) -> Result:
        """Wait for its end, as `wait` does."""
        return await self.wait(timeout)

    async def wait_for_log(self, pattern: str | re.Pattern[str], timeout: float | None = None) -> re.Match[str]:
        """Wait until a line of output, even an incomplete one, matches; no output is consumed.

        Raises:
            InvalidArgument: The pattern does not compile.
            WrongState: It ended without such a line; the message has its last output.
            DeadlineExceeded: No line matched in time; the message has its last output.
        """
        matcher = LineMatcher(compile_pattern(pattern), self._feed)
        what = f"wrote nothing that matches {matcher.pattern!r}"
        await self._within(timeout, lambda: matcher.match() or self._feed.ended, what)
        match = matcher.match()
        if match is None:
            raise self._ended_early(what)
        return match

    async def wait_for_port(self, port: int, path: str | None = None, timeout: float | None = None) -> None:
        """Wait until something listens on a port of the sandbox, or responds to a GET of `path` below 500.

        Raises:
            WrongState: The process ended before that; the message has its last output.
            DeadlineExceeded: Nothing responded in time; the message has its last output.
        """
        declared = build(WaitForPort, port, path, None if timeout is None else read_seconds("timeout", timeout))
        attachment = self._attachment()
        order = attachment.order(declared, 0 if timeout is None else timeout + DEADLINE_MARGIN_SECONDS)
        probe = asyncio.ensure_future(run_call(attachment.usable().mux, order))
        probe.add_done_callback(lambda _: self._feed.tell())
        try:
            await self._feed.wait_reading(lambda: probe.done() or self._feed.ended)
            if not probe.done():
                raise self._ended_early(f"nothing answered at port {port}")
            result = probe.result()
        finally:
            probe.cancel()
            await asyncio.wait([probe])
        if result.is_error:
            raise DeadlineExceeded(f"process {self.id}: {result['meta']['message']}{self._tail()}")

    async def _within(self, seconds: float | None, done: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(None if seconds is None else read_seconds("timeout", seconds)):
                await self._feed.wait_reading(done)
        except TimeoutError:
            raise DeadlineExceeded(f"process {self.id} {what} within {seconds:g} s{self._tail()}") from None

    def _ended_early(self, what: str) -> WrongState:
        self._feed.check()
        ended = self._feed.result
        how = "ended" if ended is None else ended.message or f"ended with exit code {ended.exit_code}"
        message = f"process {self.id}: {how} Before that, {what}.{self._tail()}"
        return WrongState(message, {"state": "EXITED", "call_id": self.id})

    def _tail(self) -> str:
        tail = self._feed.tail.decode(errors="backslashreplace")
        return f" Its last output: {tail}" if tail else " It has written nothing."
