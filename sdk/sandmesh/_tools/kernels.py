"""The tools behind `box.kernels`: kernels beside the default one, of Python and other languages."""

from __future__ import annotations

from typing import Annotated

from sandmesh._tools.declaration import Param, Tool, tool

KernelId = Annotated[str, Param("A kernel of this sandbox.", pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


@tool("kernel")
class CreateKernel(Tool):
    """Create a kernel with its own variables."""

    language: Annotated[
        str, Param("python, js, ts, bash, or a Jupyter kernel that is installed.", pattern=r"^[A-Za-z0-9_.+-]{1,64}$")
    ] = "python"
    kernel_id: Annotated[KernelId | None, Param("Its id; none: one is chosen.")] = None
    cwd: Annotated[str | None, Param("Where it starts; relative to the workspace.")] = None


@tool("kernel")
class ListKernels(Tool):
    """List the sandbox's kernels."""


@tool("kernel")
class RunCell(Tool):
    """Run code in a kernel and return what it printed, displayed and raised."""

    kernel_id: KernelId
    code: Annotated[str, Param("Code in the kernel's language.")]
    timeout: Annotated[float | None, Param("Seconds until it is stopped; none: no limit.", gt=0)] = None


@tool("kernel", methods_of="generic")
class RunCode(Tool):
    """Run code in the kernel of its language and return what it printed, displayed and raised.

    Python's is the one of `run_ipython_cell`; those of "javascript", "typescript" and "bash" start with their first
    code. Any other language is the name of a Jupyter kernel that the sandbox has.
    """

    code: Annotated[str, Param("Code; its last expression's value is shown where the language has such.")]
    language: Annotated[
        str, Param("python, js, ts, bash, or a Jupyter kernel that is installed.", pattern=r"^[A-Za-z0-9_.+-]{1,64}$")
    ] = "python"
    timeout: Annotated[float | None, Param("Seconds until it is stopped; none: no limit.", gt=0)] = None


@tool("kernel")
class InterruptKernel(Tool):
    """Interrupt the running code of a kernel; its variables stay."""

    kernel_id: KernelId


@tool("kernel")
class RestartKernel(Tool):
    """Restart a kernel's process: running code ends, and its variables are lost."""

    kernel_id: KernelId


@tool("kernel")
class DeleteKernel(Tool):
    """Delete a kernel."""

    kernel_id: KernelId


@tool("kernel")
class ForkKernel(Tool):
    """Fork a Python kernel into others with its variables and modules, copied on write, once its cells have ended.

    Refused while the kernel has threads. `not_copied` names what else the forks lack: open sockets, child processes.
    """

    kernel_id: KernelId = "default"
    count: Annotated[int, Param("How many.", ge=1, le=255)] = 1
    timeout: Annotated[float | None, Param("Seconds to wait for the kernel's cells; none: no limit.", gt=0)] = None


@tool("kernel")
class MarkKernel(Tool):
    """Hold the state of a Python kernel, so that it can be rewound to it again and again."""

    kernel_id: KernelId = "default"
    timeout: Annotated[float | None, Param("Seconds to wait for the kernel's cells; none: no limit.", gt=0)] = None


@tool("kernel")
class RewindKernel(Tool):
    """Rewind a kernel to a mark: a running cell ends, and the variables are as they were."""

    mark_id: Annotated[str, Param("A mark of the kernel.", pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    kernel_id: KernelId = "default"
    timeout: Annotated[float | None, Param("Seconds until it is given up; none: no limit.", gt=0)] = None


@tool("kernel")
class DropMark(Tool):
    """Drop a kernel's mark and free its memory."""

    mark_id: Annotated[str, Param("A mark.", pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
