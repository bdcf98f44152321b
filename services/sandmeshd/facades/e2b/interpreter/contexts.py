"""Contexts of E2B's clients: kernels of the sandbox."""

from __future__ import annotations

from typing import Any, Final

from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.e2b.envd.paths import HOME, inside
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.requests import text

DEFAULT: Final = "default"
PYTHON: Final = "python"
JAVASCRIPT: Final = "javascript"
"""The language of a context that is there from the start, too, with this id; its kernel starts when it is used."""
OWN: Final = frozenset({PYTHON, JAVASCRIPT, "typescript", "bash"})
"""Languages whose kernels are always there; others are Jupyter kernels that the sandbox has installed."""
_NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(("", "python3"), PYTHON),
    **dict.fromkeys(("js", "deno"), JAVASCRIPT),
    "ts": "typescript",
}


def language_name(asked: str) -> str:
    """Return a language's name here."""
    return _NAMES.get(asked.lower(), asked.lower())


async def context_kernel(guest: Guest, name: str) -> KernelAsync:
    """Return the kernel of a context.

    Raises:
        ApiError: There is no such context.
    """
    try:
        return await guest.box.kernels.get(name or DEFAULT)
    except WrongState:
        if name == JAVASCRIPT and await _has_script(guest):
            return await _made(guest, JAVASCRIPT, HOME, JAVASCRIPT)
        raise ApiError(404, f"Context {name} not found") from None


async def _has_script(guest: Guest) -> bool:
    """Return whether the sandbox has the context of JavaScript: it has Node.js, and the context was not removed."""
    if guest.script is None:
        look = await guest.box.processes.start(["/bin/sh", "-c", "command -v node"])
        guest.script = (await look.wait()).exit_code == 0
    return guest.script


async def execution_kernel(guest: Guest, name: str, language: str) -> KernelAsync:
    """Return the kernel of an execution: a context's, else that of its language, which is made for the first.

    Raises:
        ApiError: There is no such context, or no kernel runs the language.
    """
    wanted = language_name(language)
    if name or wanted == PYTHON:
        return await context_kernel(guest, name)
    if any(kernel.kernel_id == wanted for kernel in await guest.box.kernels.list()):
        return await guest.box.kernels.get(wanted)
    return await _made(guest, wanted, HOME, wanted)


async def create(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Make a context, and its directory, where it may be made."""
    language, directory = language_name(text(found, "language")), text(found, "cwd") or HOME
    await (await guest.box.processes.start(["/bin/mkdir", "-p", "--", inside(directory)])).wait()
    kernel = await _made(guest, language, directory)
    return _described(guest, kernel.id, kernel.language)


async def _made(guest: Guest, language: str, directory: str, kernel_id: str | None = None) -> KernelAsync:
    try:
        kernel = await guest.box.kernels.create(language, kernel_id, cwd=inside(directory))
    except (WrongState, InvalidArgument) as error:
        offered = ", ".join(sorted(OWN))
        message = f"language '{language}' is not available in this sandbox ({error}); there are {offered}"
        raise ApiError(400, message) from None
    guest.contexts[kernel.id] = (kernel.language, directory)
    return kernel


async def list_all(guest: Guest) -> list[dict[str, Any]]:
    """List the contexts: those that are there from the start, and those that were made."""
    found = {kernel.kernel_id: kernel.language for kernel in await guest.box.kernels.list()}
    first = {DEFAULT: PYTHON, **({JAVASCRIPT: JAVASCRIPT} if await _has_script(guest) else {})}
    return [_described(guest, name, language) for name, language in {**first, **found}.items()]


async def restart(guest: Guest, name: str) -> None:
    """Restart a context: its variables are lost."""
    await (await context_kernel(guest, name)).restart()
    guest.executions.pop(name, None)


async def remove(guest: Guest, name: str) -> None:
    """Remove a context."""
    if name == JAVASCRIPT:
        await _has_script(guest)
        guest.script, was_there = False, guest.script
        if was_there and name not in {kernel.kernel_id for kernel in await guest.box.kernels.list()}:
            return
    await (await context_kernel(guest, name)).delete()
    guest.contexts.pop(name, None)
    guest.executions.pop(name, None)


def _described(guest: Guest, name: str, language: str) -> dict[str, Any]:
    _, directory = guest.contexts.get(name, (language, HOME))
    return {"id": name, "language": language, "cwd": directory}
