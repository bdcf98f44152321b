"""The tools behind `box.processes`: programs that run in the background."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from sandmesh._tools.declaration import Tool, tool

Port = Annotated[int, Field(ge=1, le=65535, description="A port on the sandbox's loopback.")]
Timeout = Annotated[float | None, Field(gt=0, description="Seconds; none: no limit of its own.")]


class TerminalSize(TypedDict):
    """The size of a terminal in characters."""

    rows: Annotated[int, Field(ge=1, le=10_000)]
    columns: Annotated[int, Field(ge=1, le=10_000)]


@tool("process")
class StartProcess(Tool):
    """Run a program to its end; its output is streamed, and its input is what the caller sends.

    A str is a command line for the sandbox's shell, a list is a program and its arguments.
    """

    command: Annotated[str, Field(min_length=1, pattern=r"\S")] | Annotated[list[str], Field(min_length=1)]
    cwd: Annotated[str | None, Field(description="Where it runs; relative to the workspace, which is the default.")] = (
        None
    )
    env: Annotated[dict[str, str] | None, Field(description="Variables on top of the sandbox's environment.")] = None
    timeout: Timeout = None
    terminal: Annotated[TerminalSize | None, Field(description="The size of a terminal of its own; none: pipes.")] = (
        None
    )
    user: Annotated[str | None, Field(description="Who it runs as: the sandbox's own user, the default.")] = None


@tool("process")
class ListProcesses(Tool):
    """List the processes that run or whose events are still kept."""


@tool("process")
class WaitForPort(Tool):
    """Wait until something listens on a port of the sandbox, or responds to HTTP there."""

    port: Port
    path: Annotated[str | None, Field(pattern=r"^/[!-~]*$", description="A path whose GET must answer below 500.")] = (
        None
    )
    timeout: Timeout = None
