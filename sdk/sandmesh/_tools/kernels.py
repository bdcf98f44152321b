"""The tools behind `box.kernels`: kernels beside the default one, of Python and other languages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandmesh._tools.declaration import Tool, tool

KernelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="A kernel of this sandbox.")]


@tool("kernel")
class CreateKernel(Tool):
    """Create a kernel with its own variables."""

    language: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,64}$", description="python, or a Jupyter kernel that is installed.")
    ] = "python"
    kernel_id: Annotated[KernelId | None, Field(description="Its id; none: one is chosen.")] = None
    cwd: Annotated[str | None, Field(description="Where it starts; relative to the workspace.")] = None


@tool("kernel")
class ListKernels(Tool):
    """List the sandbox's kernels."""


@tool("kernel")
class RunCell(Tool):
    """Run code in a kernel and return what it printed, displayed and raised."""

    kernel_id: KernelId
    code: Annotated[str, Field(min_length=1, description="Code in the kernel's language.")]
    timeout: Annotated[float | None, Field(gt=0, description="Seconds until it is stopped; none: no limit.")] = None


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
