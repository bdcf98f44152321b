"""Contexts of E2B's clients: kernels of the sandbox."""

from __future__ import annotations

from typing import Any, Final

from sandmesh.errors import WrongState
from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.e2b.envd.paths import HOME, inside
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.requests import text

DEFAULT: Final = "default"
_LANGUAGES: Final = frozenset({"", "python", "python3"})


def check_language(language: str) -> None:
    """Check a language.

    Raises:
        ApiError: No kernel runs it here.
    """
    if language.lower() not in _LANGUAGES:
        message = f"language '{language}' is not available: this sandbox has kernels of python; run others by commands"
        raise ApiError(400, message)


async def context_kernel(guest: Guest, name: str) -> KernelAsync:
    """Return the kernel of a context.

    Raises:
        ApiError: There is no such context.
    """
    try:
        return await guest.box.kernels.get(name or DEFAULT)
    except WrongState:
        raise ApiError(404, f"Context {name} not found") from None


async def create(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Make a context."""
    check_language(text(found, "language"))
    directory = text(found, "cwd") or HOME
    kernel = await guest.box.kernels.create("python", cwd=inside(directory))
    guest.contexts[kernel.id] = ("python", directory)
    return _described(guest, kernel.id)


async def list_all(guest: Guest) -> list[dict[str, Any]]:
    """List the contexts, the default one too."""
    return [_described(guest, one.kernel_id) for one in await guest.box.kernels.list() if one.language == "python"]


async def restart(guest: Guest, name: str) -> None:
    """Restart a context: its variables are lost."""
    await (await context_kernel(guest, name)).restart()
    guest.executions.pop(name, None)


async def remove(guest: Guest, name: str) -> None:
    """Remove a context."""
    await (await context_kernel(guest, name)).delete()
    guest.contexts.pop(name, None)
    guest.executions.pop(name, None)


def _described(guest: Guest, name: str) -> dict[str, Any]:
    language, directory = guest.contexts.get(name, ("python", HOME))
    return {"id": name, "language": language, "cwd": directory}
