"""Isolated computers on demand for AI agents: Python and shell, files and more, over an async gRPC mesh.

    with BaseSandbox() as box:
        print(box.run_ipython_cell("1 + 1").text)

Names are imported at their first use, so that `import sandmesh` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandmesh import errors, tools
    from sandmesh.errors import SandmeshError
    from sandmesh.events import (
        CallEvent,
        Cleared,
        ContentBlock,
        Dropped,
        InputRequested,
        Output,
        Progress,
        Result,
        Started,
    )
    from sandmesh.inputs import Limits, NetworkGrant, SandboxType, Secret, Snapshot
    from sandmesh.mesh import Mesh, MeshAsync
    from sandmesh.results import CallSummary, SandboxStats, StatsSample, ToolResult
    from sandmesh.sandbox.boxes import (
        BaseSandboxAsync,
        BrowserSandboxAsync,
        FilesystemSandboxAsync,
        GuiSandboxAsync,
        MobileSandboxAsync,
        SandboxAsync,
    )
    from sandmesh.sandbox.class_registry import SandboxConfig
    from sandmesh.sandbox.dummy import DummySandbox
    from sandmesh.sandbox.images.builds import BuiltImage
    from sandmesh.sandbox.images.image import Image, RegistryLogin
    from sandmesh.sandbox.kernels import Forks, KernelAsync, KernelInfo, KernelMark, KernelsAsync
    from sandmesh.sandbox.mcp import McpServer, ToolsChanged
    from sandmesh.sandbox.processes import ProcessAsync, ProcessesAsync, ProcessInfo
    from sandmesh.sandbox.service import SandboxService
    from sandmesh.sandbox.session.info import SessionInfo
    from sandmesh.sandbox.session.marks import SandboxMark
    from sandmesh.sandbox.sync import BaseSandbox, BrowserSandbox, FilesystemSandbox, GuiSandbox, MobileSandbox, Sandbox
    from sandmesh.sandbox.sync_handles import Kernel, Kernels, Process, Processes
    from sandmesh.sandbox.tools.toolkit import Toolkit, ToolkitAsync
    from sandmesh.sandbox.training.boxes import (
        APPWorldSandbox,
        APPWorldSandboxAsync,
        BFCLSandbox,
        BFCLSandboxAsync,
        TrainingSandbox,
        TrainingSandboxAsync,
    )
    from sandmesh.sandbox.training.methods import InstanceFailed
    from sandmesh.shared.environment import Environment, EnvironmentRefusal
    from sandmesh.shared.version import __version__
    from sandmesh.templates.registry import SandboxRegistry, build_image_uri
    from sandmesh.templates.sandbox_tools import sandbox_tool

__all__ = [
    "APPWorldSandbox",
    "APPWorldSandboxAsync",
    "BFCLSandbox",
    "BFCLSandboxAsync",
    "BaseSandbox",
    "BaseSandboxAsync",
    "BrowserSandbox",
    "BrowserSandboxAsync",
    "BuiltImage",
    "CallEvent",
    "CallSummary",
    "Cleared",
    "ContentBlock",
    "Dropped",
    "DummySandbox",
    "Environment",
    "EnvironmentRefusal",
    "FilesystemSandbox",
    "FilesystemSandboxAsync",
    "Forks",
    "GuiSandbox",
    "GuiSandboxAsync",
    "Image",
    "InputRequested",
    "InstanceFailed",
    "Kernel",
    "KernelAsync",
    "KernelInfo",
    "KernelMark",
    "Kernels",
    "KernelsAsync",
    "Limits",
    "McpServer",
    "Mesh",
    "MeshAsync",
    "MobileSandbox",
    "MobileSandboxAsync",
    "NetworkGrant",
    "Output",
    "Process",
    "ProcessAsync",
    "ProcessInfo",
    "Processes",
    "ProcessesAsync",
    "Progress",
    "RegistryLogin",
    "Result",
    "Sandbox",
    "SandboxAsync",
    "SandboxConfig",
    "SandboxMark",
    "SandboxRegistry",
    "SandboxService",
    "SandboxStats",
    "SandboxType",
    "SandmeshError",
    "Secret",
    "SessionInfo",
    "Snapshot",
    "Started",
    "StatsSample",
    "ToolResult",
    "Toolkit",
    "ToolkitAsync",
    "ToolsChanged",
    "TrainingSandbox",
    "TrainingSandboxAsync",
    "__version__",
    "build_image_uri",
    "errors",
    "sandbox_tool",
    "tools",
]

_HOMES = {
    "ToolkitAsync": "sandbox.tools.toolkit",
    "Toolkit": "sandbox.tools.toolkit",
    "sandbox_tool": "templates.sandbox_tools",
    "DummySandbox": "sandbox.dummy",
    "build_image_uri": "templates.registry",
    "SandboxConfig": "sandbox.class_registry",
    "SandboxRegistry": "templates.registry",
    "__version__": "shared.version",
    "BaseSandbox": "sandbox.sync",
    "BrowserSandbox": "sandbox.sync",
    "FilesystemSandbox": "sandbox.sync",
    "Sandbox": "sandbox.sync",
    "BaseSandboxAsync": "sandbox.boxes",
    "BrowserSandboxAsync": "sandbox.boxes",
    "FilesystemSandboxAsync": "sandbox.boxes",
    "SandboxAsync": "sandbox.boxes",
    "GuiSandbox": "sandbox.sync",
    "GuiSandboxAsync": "sandbox.boxes",
    "MobileSandbox": "sandbox.sync",
    "MobileSandboxAsync": "sandbox.boxes",
    "Environment": "shared.environment",
    "EnvironmentRefusal": "shared.environment",
    "InstanceFailed": "sandbox.training.methods",
    "APPWorldSandbox": "sandbox.training.boxes",
    "APPWorldSandboxAsync": "sandbox.training.boxes",
    "BFCLSandbox": "sandbox.training.boxes",
    "BFCLSandboxAsync": "sandbox.training.boxes",
    "TrainingSandbox": "sandbox.training.boxes",
    "TrainingSandboxAsync": "sandbox.training.boxes",
    "SandboxService": "sandbox.service",
    "SessionInfo": "sandbox.session.info",
    "ToolResult": "results",
    "CallSummary": "results",
    "SandboxStats": "results",
    "StatsSample": "results",
    "SandmeshError": "errors",
    "BuiltImage": "sandbox.images.builds",
    "Image": "sandbox.images.image",
    "RegistryLogin": "sandbox.images.image",
    "Limits": "inputs",
    "NetworkGrant": "inputs",
    "Secret": "inputs",
    "SandboxType": "inputs",
    "Snapshot": "inputs",
    "InputRequested": "events",
    "Kernel": "sandbox.sync_handles",
    "KernelAsync": "sandbox.kernels",
    "KernelInfo": "sandbox.kernels",
    "KernelMark": "sandbox.kernels",
    "SandboxMark": "sandbox.session.marks",
    "Forks": "sandbox.kernels",
    "Kernels": "sandbox.sync_handles",
    "KernelsAsync": "sandbox.kernels",
    "McpServer": "sandbox.mcp",
    "Mesh": "mesh",
    "MeshAsync": "mesh",
    "ToolsChanged": "sandbox.mcp",
    "Process": "sandbox.sync_handles",
    "ProcessAsync": "sandbox.processes",
    "ProcessInfo": "sandbox.processes",
    "Processes": "sandbox.sync_handles",
    "ProcessesAsync": "sandbox.processes",
    "CallEvent": "events",
    "Cleared": "events",
    "ContentBlock": "events",
    "Dropped": "events",
    "Output": "events",
    "Progress": "events",
    "Result": "events",
    "Started": "events",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name in ("errors", "tools"):
        return import_module(f"sandmesh.{name}")
    if name in _HOMES:
        found: object = getattr(import_module(f"sandmesh.{_HOMES[name]}"), name)
    elif name.endswith(("Sandbox", "SandboxAsync")):
        found = import_module("sandmesh.sandbox.builtin").class_named(name)
    else:
        found = None
    if found is None:
        raise AttributeError(f"module 'sandmesh' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
