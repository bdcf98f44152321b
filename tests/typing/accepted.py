"""What type-checkers must accept and know; only they read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

from sandmesh import (
    BaseSandbox,
    BaseSandboxAsync,
    CallEvent,
    FilesystemSandbox,
    FilesystemSandboxAsync,
    Limits,
    NetworkGrant,
    Sandbox,
    SandboxService,
    ToolResult,
)
from sandmesh.files import FileChange, FileInfo
from sandmesh.tools import RunIpythonCell


def sync() -> None:
    """Sync methods have the tools' parameters."""
    with BaseSandbox(timeout=5, limits=Limits(pids=5), network="public", env={"A": "b"}, ttl=60.0) as box:
        assert_type(box, BaseSandbox)
        assert_type(box.run_ipython_cell("1+1"), ToolResult)
        assert_type(box.run_ipython_cell(code="1+1", timeout=2.0), ToolResult)
        assert_type(box.run_shell_command("ls", cwd="/workspace", env={"A": "b"}), ToolResult)
        assert_type(box.call(RunIpythonCell(code="1")), ToolResult)
        assert_type(box.call_tool("any", {"a": 1}), ToolResult)
        assert_type(box.get_info(), dict[str, Any])
        events: Iterator[CallEvent] = box.stream("run_shell_command", command="ls")
        assert_type(next(events), CallEvent)


def files(box: FilesystemSandbox) -> None:
    """The filesystem tools too."""
    assert_type(box.edit_file("a", [{"oldText": "a", "newText": "b"}], dry_run=True), ToolResult)
    assert_type(box.search_files("a", "b", exclude_patterns=["c"]), ToolResult)
    parent: Sandbox = box
    assert_type(parent.sandbox_id, str)


async def with_a_loop() -> None:
    """Async twins await the same names."""
    FilesystemSandboxAsync(network="packages")
    FilesystemSandboxAsync(network=["public", "nas.local:5000"])
    async with FilesystemSandboxAsync(network=NetworkGrant("hosts", ("pypi.org",))) as box:
        assert_type(await box.run_ipython_cell("1+1"), ToolResult)
        assert_type(await box.read_file("a"), ToolResult)
        async for event in box.stream("run_ipython_cell", code="1"):
            assert_type(event, CallEvent)
        parent: BaseSandboxAsync = box
        assert_type(await parent.call_tool("x"), ToolResult)


async def sessions(service: SandboxService) -> None:
    """A service gives lists of boxes."""
    assert_type(service.connect("s", "u", ["base"]), list[BaseSandbox])
    assert_type(await service.connect_async("s", user_id="u"), list[BaseSandboxAsync])


def own_files(box: Sandbox) -> None:
    """Reading gives what `fmt` says."""
    assert_type(box.fs.read("a"), str)
    assert_type(box.fs.read("a", "bytes", offset=3), bytes)
    assert_type(box.fs.list("a", depth=2), list[FileInfo])
    assert_type(box.fs.write("a", [b"x"], mode=0o600), FileInfo)
    assert_type(box.expose(80, ttl=5).url, str)
    changes: Iterator[FileChange] = box.fs.watch("a")
    assert_type(next(changes), FileChange)
