"""The tools behind `box.processes`: programs that run in the background."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from sandmesh._tools.declaration import Param, Tool, tool

Port = Annotated[int, Param("A port on the sandbox's loopback.", ge=1, le=65535)]
Timeout = Annotated[float | None, Param("Seconds until it is stopped; none: no limit.", gt=0)]


class TerminalSize(TypedDict):
    """The size of a terminal in characters."""

    rows: Annotated[int, Param(ge=1, le=10_000)]
    columns: Annotated[int, Param(ge=1, le=10_000)]


@tool("process")
class StartProcess(Tool):
    """Run a program to its end; its output is streamed, and its input is what the caller sends.

    A str is a command line for the sandbox's shell, a list is a program and its arguments.
    """

    command: Annotated[str, Param(min_length=1, pattern=r"\S")] | list[str]
    cwd: Annotated[str | None, Param("Where it runs; relative to the workspace, which is the default.")] = None
    env: Annotated[dict[str, str] | None, Param("Variables on top of the sandbox's environment.")] = None
    timeout: Timeout = None
    terminal: Annotated[TerminalSize | None, Param("The size of its terminal; none: pipes.")] = None
    user: Annotated[str | None, Param("Who it runs as: the sandbox's own user, the default.")] = None
    entrypoint: Annotated[
        bool,
        Param("Run what the sandbox's image says (ENTRYPOINT) with the list as arguments; empty: those of its CMD."),
    ] = False


@tool("process")
class ListProcesses(Tool):
    """List the processes that run or whose events are still kept."""


@tool("process")
class WaitForPort(Tool):
    """Wait until something listens on a port of the sandbox, or responds to HTTP there."""

    port: Port
    path: Annotated[str | None, Param("A path whose GET must answer below 500.", pattern=r"^/[!-~]*$")] = None
    timeout: Timeout = None


@tool("process")
class ReadStats(Tool):
    """Return what the sandbox's processes use: processor, memory, their number and the workspace's size.

    The result is structured, with samples every 10 seconds since it was first asked, up to an hour.
    """


@tool("process")
class ListCalls(Tool):
    """List the newest calls of the sandbox: the tool of each, when it began, how long it took and how it ended.

    The result is structured. Arguments and results are not kept, and what only looks at the sandbox is not listed.
    """
