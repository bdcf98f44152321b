"""The counterpart of each old name, written as `module:attribute`."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType

from sandmesh.tools import TOOLS

ROOT = "agentscope_runtime"
HERE = "sandmesh.compat.agentscope_runtime"

_BOXES = {
    "Sandbox": f"{HERE}.boxes:Sandbox",
    "SandboxAsync": f"{HERE}.boxes:SandboxAsync",
    "BaseSandbox": f"{HERE}.boxes:BaseSandbox",
    "BaseSandboxAsync": f"{HERE}.boxes:BaseSandboxAsync",
    "FilesystemSandbox": f"{HERE}.boxes:FilesystemSandbox",
    "FilesystemSandboxAsync": f"{HERE}.boxes:FilesystemSandboxAsync",
    "BrowserSandbox": f"{HERE}.boxes:BrowserSandbox",
    "BrowserSandboxAsync": f"{HERE}.boxes:BrowserSandboxAsync",
    "GuiSandbox": f"{HERE}.boxes:GuiSandbox",
    "GuiSandboxAsync": f"{HERE}.boxes:GuiSandboxAsync",
    "MobileSandbox": f"{HERE}.boxes:MobileSandbox",
    "MobileSandboxAsync": f"{HERE}.boxes:MobileSandboxAsync",
    "DummySandbox": "sandmesh:DummySandbox",
}
_TRAINING = {
    # There AppWorld is what a training sandbox has, unless it is of another class.
    "TrainingSandbox": "sandmesh:APPWorldSandbox",
    "TrainingSandboxAsync": "sandmesh:APPWorldSandboxAsync",
    **{name: f"sandmesh:{name}" for kind in ("APPWorldSandbox", "BFCLSandbox") for name in (kind, f"{kind}Async")},
}
_CLOUDS = {
    name: f"{HERE}.cloud:{name}"
    for name in ("AgentbaySandbox", "AsyncAgentbaySandbox", "AsyncCloudSandbox", "CloudSandbox")
}
_TYPE = {"SandboxType": f"{HERE}.cloud.types:SandboxType"}
_BASE_TOOLS = tuple(name for name, declaration in TOOLS.items() if declaration.group == "generic")
_FILE_TOOLS = tuple(name for name, declaration in TOOLS.items() if declaration.group == "filesystem")
_BROWSER_TOOLS = tuple(name for name, declaration in TOOLS.items() if declaration.group == "browser")
_GUI_TOOLS = ("computer_use",)
_TOOLS = {name: f"sandmesh.tools:{name}" for name in (*_BASE_TOOLS, *_FILE_TOOLS, *_BROWSER_TOOLS, *_GUI_TOOLS)}
_FUNCTIONS = {name: f"sandmesh.tools:{name}" for name in ("FunctionTool", "function_tool")}
_SANDBOX_TOOL = {"SandboxTool": "sandmesh.tools:SandboxTool"}
_MCP = {"MCPConfigConverter": "sandmesh.tools:MCPConfigConverter"}
_TOOL = {"Tool": "sandmesh.tools:ToolFunction"}
_REGISTRY = {
    "SandboxRegistry": "sandmesh:SandboxRegistry",
    "SandboxConfig": "sandmesh:SandboxConfig",
    **_TYPE,
}
_MANAGER = {"SandboxManager": f"{HERE}.manager:SandboxManager"}
_SERVICE = {"SandboxService": f"{HERE}.service:SandboxService"}
_FACTORY = {"SandboxServiceFactory": f"{HERE}.service:SandboxServiceFactory"}
_FILES = {name: f"{HERE}.files:{name}" for name in ("SandboxFS", "SandboxFSAsync")}
_ENVIRONMENT = {
    "EnvironmentManager": f"{HERE}.environment:EnvironmentManager",
    "create_environment_manager": f"{HERE}.environment:create_environment_manager",
}
_NONE: dict[str, str] = {}

MODULES = MappingProxyType(
    {
        ROOT: _NONE,
        f"{ROOT}.engine": _NONE,
        f"{ROOT}.engine.services": {**_SERVICE, **_ENVIRONMENT},
        f"{ROOT}.engine.services.sandbox": {**_SERVICE, **_FACTORY},
        f"{ROOT}.engine.services.sandbox.sandbox_service": _SERVICE,
        f"{ROOT}.engine.services.sandbox.sandbox_service_factory": _FACTORY,
        f"{ROOT}.engine.services.sandbox_service": _SERVICE,
        f"{ROOT}.engine.services.environment_manager": _ENVIRONMENT,
        f"{ROOT}.sandbox": {**_BOXES, **_TRAINING, **_CLOUDS, **_REGISTRY},
        f"{ROOT}.sandbox.box": _NONE,
        f"{ROOT}.sandbox.box.sandbox": _BOXES,
        f"{ROOT}.sandbox.box.components": _FILES,
        f"{ROOT}.sandbox.box.components.fs": _FILES,
        f"{ROOT}.sandbox.box.base": _BOXES,
        f"{ROOT}.sandbox.box.base.base_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.filesystem": _BOXES,
        f"{ROOT}.sandbox.box.filesystem.filesystem_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.browser": _BOXES,
        f"{ROOT}.sandbox.box.browser.browser_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.gui": _BOXES,
        f"{ROOT}.sandbox.box.gui.gui_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.mobile": _BOXES,
        f"{ROOT}.sandbox.box.mobile.mobile_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.training_box": _TRAINING,
        f"{ROOT}.sandbox.box.training_box.training_box": _TRAINING,
        f"{ROOT}.sandbox.box.dummy": _BOXES,
        f"{ROOT}.sandbox.box.dummy.dummy_sandbox": _BOXES,
        f"{ROOT}.sandbox.box.agentbay": _CLOUDS,
        f"{ROOT}.sandbox.box.agentbay.agentbay_sandbox": _CLOUDS,
        f"{ROOT}.sandbox.box.cloud": _CLOUDS,
        f"{ROOT}.sandbox.box.cloud.cloud_sandbox": _CLOUDS,
        f"{ROOT}.sandbox.enums": _TYPE,
        f"{ROOT}.sandbox.registry": _REGISTRY,
        f"{ROOT}.sandbox.utils": {"build_image_uri": f"{HERE}.images:build_image_uri"},
        f"{ROOT}.sandbox.manager": _MANAGER,
        f"{ROOT}.sandbox.manager.sandbox_manager": _MANAGER,
        f"{ROOT}.sandbox.tools": {**_FUNCTIONS, **_SANDBOX_TOOL, **_TOOL},
        f"{ROOT}.sandbox.tools.base": {name: _TOOLS[name] for name in _BASE_TOOLS},
        f"{ROOT}.sandbox.tools.base.tool": {name: _TOOLS[name] for name in _BASE_TOOLS},
        f"{ROOT}.sandbox.tools.filesystem": {name: _TOOLS[name] for name in _FILE_TOOLS},
        f"{ROOT}.sandbox.tools.filesystem.tool": {name: _TOOLS[name] for name in _FILE_TOOLS},
        f"{ROOT}.sandbox.tools.browser": {name: _TOOLS[name] for name in _BROWSER_TOOLS},
        f"{ROOT}.sandbox.tools.browser.tool": {name: _TOOLS[name] for name in _BROWSER_TOOLS},
        f"{ROOT}.sandbox.tools.gui": {name: _TOOLS[name] for name in _GUI_TOOLS},
        f"{ROOT}.sandbox.tools.gui.tool": {name: _TOOLS[name] for name in _GUI_TOOLS},
        f"{ROOT}.sandbox.tools.function_tool": _FUNCTIONS,
        f"{ROOT}.sandbox.tools.mcp_tool": _MCP,
        f"{ROOT}.sandbox.tools.sandbox_tool": _SANDBOX_TOOL,
        f"{ROOT}.sandbox.tools.tool": _TOOL,
    }
)

_CLOUD = "it stands for another company's cloud; make a sandbox of your own mesh"
ABSENT = MappingProxyType(
    {
        "CloudComputerSandbox": _CLOUD,
        "CloudPhoneSandbox": _CLOUD,
        "E2bSandBox": _CLOUD,
    }
)


def find(where: str) -> object:
    """Return the object at `module:attribute`."""
    module, _, attribute = where.partition(":")
    found: object = getattr(import_module(module), attribute)
    return found
