"""Tools that every Python template has: code and commands."""

from __future__ import annotations

from typing import Annotated

from sandmesh._tools.declaration import Param, Tool, tool

Timeout = Annotated[float | None, Param("Seconds until it is stopped; none: the sandbox's own limit.", gt=0)]


@tool("generic")
class RunIpythonCell(Tool):
    """Run Python code in the sandbox's kernel and return what it printed, displayed and raised.

    Variables and imports stay for the next cell. IPython's magics and top-level await work.
    """

    code: Annotated[str, Param("Python code; its last expression's value is shown.")]
    timeout: Timeout = None


@tool("generic")
class RunShellCommand(Tool):
    """Run a command line with the sandbox's shell and return its output and exit code."""

    command: Annotated[str, Param("The command line, for /bin/bash -c.", min_length=1, pattern=r"\S")]
    timeout: Timeout = None
    cwd: Annotated[str | None, Param("Where it runs; relative to the workspace, which is the default.")] = None
    env: Annotated[dict[str, str] | None, Param("Variables on top of the sandbox's environment.")] = None
