"""Sync methods made of async ones, with their arguments, docstring and result."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from sandmesh._client.process_state import process

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Facade")


class Facade:
    """A sync class: it has an async twin that does the work, in the portal's loop."""

    twin: Any
    """The async object that does the work; it belongs to the portal's loop."""


class Batches(Protocol[R]):
    """An async iterator that can return all items there are in one batch: one change of threads for many."""

    async def take(self) -> list[R]:
        """Wait for items and give those there are; an empty list is the end."""
        ...

    async def aclose(self) -> None:
        """Cancel the iteration."""
        ...


def run(twin: str, work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in the portal; `twin` names what a program with its own loop should use instead."""
    try:
        _warn_in_loop(twin)
        portal = process().portal()
    except BaseException:
        work.close()
        raise
    return portal.run(work)


def _warn_in_loop(twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if process().first_time("blocking in a loop"):
        message = f"this blocks the running event loop until it is done; use {twin} and await it"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Make the sync method of an async twin's."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run(type(self.twin).__name__, method(self.twin, *args, **kwargs))

    return call


def blocking_twin(
    facade: type[F], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]]
) -> Callable[Concatenate[Any, P], F]:
    """Make the sync method of an async twin's that gives an object which has a sync class too."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> F:
        made = facade.__new__(facade)
        made.twin = run(type(self.twin).__name__, method(self.twin, *args, **kwargs))
        return made

    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], Batches[R]],
) -> Callable[Concatenate[Any, P], BlockingIterator[R]]:
    """Make the sync method of an async twin's that gives an async iterator."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[R]:
        return BlockingIterator(method(self.twin, *args, **kwargs), type(self.twin).__name__)

    return call


class BlockingIterator(Iterator[R], Generic[R]):
    """Iterates in a thread over what an async iterator in the portal's loop gives; closing it lets go of the work."""

    def __init__(self, items: Batches[R], twin: str) -> None:
        self._items = items
        self._twin = twin
        self._ready: list[R] = []
        self._ended = False

    def __next__(self) -> R:
        """Wait for the next item."""
        if not self._ready and not self._ended:
            self._ready = run(self._twin, self._items.take())[::-1]
            self._ended = not self._ready
        if not self._ready:
            raise StopIteration
        return self._ready.pop()

    def close(self) -> None:
        """Cancel what is still under way."""
        self._ended = True
        self._ready.clear()
        run(self._twin, self._items.aclose())

    def __enter__(self) -> Self:
        """Return itself; the block's end closes it."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Cancel what is still under way."""
        self.close()
