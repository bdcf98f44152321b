"""Isolated computers on demand for AI agents: Python and shell, files and more, over an async gRPC mesh.

    with BaseSandbox() as box:
        print(box.run_ipython_cell("1 + 1").text)

Names are loaded when they are first used, so that `import sandmesh` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandmesh import errors, tools
    from sandmesh._registered import SandboxConfig
    from sandmesh._version import __version__
    from sandmesh.boxes import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync
    from sandmesh.dummy import DummySandbox
    from sandmesh.errors import SandmeshError
    from sandmesh.events import CallEvent, ContentBlock, Dropped, InputRequested, Output, Progress, Result, Started
    from sandmesh.inputs import Limits, NetworkGrant, SandboxType, Snapshot
    from sandmesh.inside import sandbox_tool
    from sandmesh.kernels import KernelAsync, KernelInfo, KernelsAsync
    from sandmesh.mcp import McpServer, ToolsChanged
    from sandmesh.processes import ProcessAsync, ProcessesAsync, ProcessInfo
    from sandmesh.registry import SandboxRegistry, build_image_uri
    from sandmesh.results import ToolResult
    from sandmesh.services import SandboxService
    from sandmesh.sessions import SessionInfo
    from sandmesh.sync import BaseSandbox, FilesystemSandbox, Sandbox
    from sandmesh.sync_kernels import Kernel, Kernels
    from sandmesh.sync_processes import Process, Processes
    from sandmesh.toolkit import Toolkit, ToolkitAsync

__all__ = [
    "BaseSandbox",
    "BaseSandboxAsync",
    "CallEvent",
    "ContentBlock",
    "Dropped",
    "DummySandbox",
    "FilesystemSandbox",
    "FilesystemSandboxAsync",
    "InputRequested",
    "Kernel",
    "KernelAsync",
    "KernelInfo",
    "Kernels",
    "KernelsAsync",
    "Limits",
    "McpServer",
    "NetworkGrant",
    "Output",
    "Process",
    "ProcessAsync",
    "ProcessInfo",
    "Processes",
    "ProcessesAsync",
    "Progress",
    "Result",
    "Sandbox",
    "SandboxAsync",
    "SandboxConfig",
    "SandboxRegistry",
    "SandboxService",
    "SandboxType",
    "SandmeshError",
    "SessionInfo",
    "Snapshot",
    "Started",
    "ToolResult",
    "Toolkit",
    "ToolkitAsync",
    "ToolsChanged",
    "__version__",
    "build_image_uri",
    "errors",
    "sandbox_tool",
    "tools",
]

_HOMES = {
    "ToolkitAsync": "toolkit",
    "Toolkit": "toolkit",
    "sandbox_tool": "inside",
    "DummySandbox": "dummy",
    "build_image_uri": "registry",
    "SandboxConfig": "_registered",
    "SandboxRegistry": "registry",
    "__version__": "_version",
    "BaseSandbox": "sync",
    "FilesystemSandbox": "sync",
    "Sandbox": "sync",
    "BaseSandboxAsync": "boxes",
    "FilesystemSandboxAsync": "boxes",
    "SandboxAsync": "boxes",
    "SandboxService": "services",
    "SessionInfo": "sessions",
    "ToolResult": "results",
    "SandmeshError": "errors",
    "Limits": "inputs",
    "NetworkGrant": "inputs",
    "SandboxType": "inputs",
    "Snapshot": "inputs",
    "InputRequested": "events",
    "Kernel": "sync_kernels",
    "KernelAsync": "kernels",
    "KernelInfo": "kernels",
    "Kernels": "sync_kernels",
    "KernelsAsync": "kernels",
    "McpServer": "mcp",
    "ToolsChanged": "mcp",
    "Process": "sync_processes",
    "ProcessAsync": "processes",
    "ProcessInfo": "processes",
    "Processes": "sync_processes",
    "ProcessesAsync": "processes",
    "CallEvent": "events",
    "ContentBlock": "events",
    "Dropped": "events",
    "Output": "events",
    "Progress": "events",
    "Result": "events",
    "Started": "events",
}


def __getattr__(name: str) -> object:
    """Load a public name from where it is."""
    if name in ("errors", "tools"):
        return import_module(f"sandmesh.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'sandmesh' has no attribute {name!r}")
    found: object = getattr(import_module(f"sandmesh.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
