"""A time-out for every async test, which ends its waits in the event loop.

pytest-timeout ends a test that hangs as well, but from a signal: in whatever line the process is, with fixtures half
undone. Here a wait that takes too long is cancelled where it waits, the failure shows that line, and what the test
opened is closed in order. Each async test gets its pytest-timeout (its marker, the option, or the setting in
pyproject.toml) less what that and the report take. Fixtures have pytest-timeout alone.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

CLOSE_SECONDS = 10.0


def pytest_itemcollected(item: pytest.Item) -> None:
    """Bound an async test."""
    if isinstance(item, pytest.Function):
        test: Any = item.obj
        seconds = wait_seconds(timeout_seconds(item))
        made_up = getattr(test, "hypothesis", None)
        if inspect.iscoroutinefunction(test):
            item.obj = bounded(test, seconds)
        elif made_up is not None and inspect.iscoroutinefunction(made_up.inner_test):
            # Each of hypothesis' examples is a run of its own.
            made_up.inner_test = bounded(made_up.inner_test, seconds)


def timeout_seconds(item: pytest.Item) -> float:
    """Return the seconds after which pytest-timeout ends a test."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    option = cast("float | None", item.config.getoption("--timeout"))
    return option if option is not None else float(cast("str", item.config.getini("timeout")))


def wait_seconds(timeout: float) -> float:
    """Return the part of a test's time that it may wait in."""
    return max(timeout - CLOSE_SECONDS, timeout / 2)


def bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    """Return the test with a time-out."""

    @functools.wraps(test)
    async def run(*args: object, **fixtures: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **fixtures)

    return run
