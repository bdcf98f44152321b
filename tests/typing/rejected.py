# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Lines that type-checkers must reject: each comment that is not needed is an error to them."""

from __future__ import annotations

from sandmesh import BaseSandbox, BaseSandboxAsync, FilesystemSandbox, Limits, SandboxAsync
from sandmesh.tools import RunIpythonCell


def wrong_values(box: BaseSandbox, files: FilesystemSandbox) -> None:
    """Types and names of parameters are known."""
    box.run_ipython_cell(1)  # type: ignore[arg-type]
    box.run_ipython_cell()  # type: ignore[call-arg]
    box.run_ipython_cell("1", cwd="/")  # type: ignore[call-arg]
    box.run_shell_command("ls", env=["A"])  # type: ignore[arg-type]
    box.call("run_ipython_cell")  # type: ignore[arg-type]
    box.read_file("a")  # type: ignore[attr-defined]
    files.edit_file("a", [{"oldText": "a"}])  # type: ignore[typeddict-item]
    RunIpythonCell(code=1)  # type: ignore[arg-type]


def wrong_constructors() -> None:
    """Keywords of constructors are known."""
    BaseSandbox(timeout="3")  # type: ignore[arg-type]
    BaseSandbox(colour="red")  # type: ignore[call-arg]
    SandboxAsync(ttl="long")  # type: ignore[arg-type]
    Limits(memory_bytes=1 << 30)  # type: ignore[call-arg]


async def not_awaited(box: BaseSandboxAsync) -> str:
    """A coroutine is no result."""
    return box.run_ipython_cell("1").text  # type: ignore[attr-defined,no-any-return]
