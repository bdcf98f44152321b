"""What an import costs, counted in modules, and what is public."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sandmesh

PUBLIC = [
    "APPWorldSandbox", "APPWorldSandboxAsync", "BFCLSandbox", "BFCLSandboxAsync",
    "BaseSandbox", "BaseSandboxAsync", "BrowserSandbox", "BrowserSandboxAsync", "BuiltImage", "CallEvent",
    "CallSummary",
    "Cleared", "ContentBlock",
    "Dropped", "DummySandbox", "Environment", "EnvironmentRefusal", "FilesystemSandbox",
    "FilesystemSandboxAsync", "Forks", "GuiSandbox", "GuiSandboxAsync",
    "Image", "InputRequested", "InstanceFailed",
    "Kernel", "KernelAsync", "KernelInfo", "KernelMark", "Kernels", "KernelsAsync",
    "Limits", "McpServer", "Mesh", "MeshAsync", "MobileSandbox", "MobileSandboxAsync",
    "NetworkGrant", "Output", "Process", "ProcessAsync", "ProcessInfo",
    "Processes",
    "ProcessesAsync", "Progress", "RegistryLogin",
    "Result", "Sandbox", "SandboxAsync", "SandboxConfig", "SandboxMark", "SandboxRegistry",
    "SandboxService", "SandboxStats", "SandboxType", "SandmeshError", "Secret", "SessionInfo", "Snapshot", "Started",
    "StatsSample", "ToolResult",
    "Toolkit", "ToolkitAsync", "ToolsChanged", "TrainingSandbox", "TrainingSandboxAsync",
    "__version__", "build_image_uri", "errors", "sandbox_tool", "tools",
]  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return set(out.stdout.split())


def test_the_public_names_are_these() -> None:
    assert sandmesh.__all__ == PUBLIC
    assert dir(sandmesh) == PUBLIC
    for name in PUBLIC:
        assert getattr(sandmesh, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sandbag'"):
        getattr(sandmesh, "Sandbag")  # noqa: B009 - a type-checker would find it


@pytest.mark.parametrize("statement", ["import sandmesh", "import sandmesh.errors"])
def test_importing_the_package_loads_no_grpc_and_no_pydantic(statement: str) -> None:
    assert not loaded_by(statement) & {"grpc", "pydantic", "asyncio"}


@pytest.mark.parametrize("name", ["BaseSandbox", "FilesystemSandboxAsync"])
def test_a_box_loads_what_it_needs_and_the_rest_at_its_first_use(name: str) -> None:
    loaded = loaded_by(f"from sandmesh import {name}")
    assert "grpc" in loaded
    own = {
        "sandmesh._files.api",
        "sandmesh._tools.validation",
        "sandmesh.sandbox.kernels",
        "sandmesh.sandbox.processes",
        "sandmesh.sandbox.service",
        "sandmesh.templates.registry",
        "sandmesh.toolkits.functions",
    }
    assert not loaded & {"pydantic", "pydantic_core", "tarfile", *own}


def test_the_whole_sdk_loads_nothing_of_a_mesh() -> None:
    loaded = loaded_by("from sandmesh import *")
    assert "sandmesh.sandbox.service" in loaded
    unwanted = {"sandmeshd", "redis", "rich", "typer", "IPython", "structlog", "uvloop", "pydantic_settings"}
    assert not loaded & unwanted
