"""Tools: a typed declaration of each, and each as a function.

    from sandmesh.tools import run_ipython_cell

    print(run_ipython_cell(code="1 + 1").text)

The declarations are those of `sandmesh._tools`; type checkers read `tools.pyi`, which `make stubs` writes. The
functions are loaded at their first use: agents, which have no SDK, import the declarations.
"""

from __future__ import annotations

from importlib import import_module

from sandmesh import _tools
from sandmesh._tools import PLUMBING, TOOLS, declared_classes

_DECLARATION = ("PLUMBING", "TOOLS", "Tool", "ToolSchema", "build", "description", "dump", "input_schema", "parse")
_FACTORIES = {
    "FunctionTool": "local_functions",
    "function_tool": "local_functions",
    "MCPConfigConverter": "mcp_tools",
    "McpTool": "mcp_tools",
    "SandboxTool": "functions",
    "ToolFunction": "functions",
}
_FUNCTIONS = frozenset(name for name, declaration in TOOLS.items() if declaration.group not in PLUMBING)

_PUBLIC = sorted({*_DECLARATION, *_FACTORIES, *_FUNCTIONS, *declared_classes()})


def __getattr__(name: str) -> object:
    """Load a declaration, a function, or a class that makes functions, at its first use."""
    if name in _FACTORIES:
        globals()[name] = getattr(import_module(f"sandmesh.toolkits.{_FACTORIES[name]}"), name)
    elif name in _FUNCTIONS:
        globals().update(import_module("sandmesh.toolkits.functions").declared_functions())
    elif name in _DECLARATION:
        globals()[name] = getattr(_tools, name)
    elif name in _PUBLIC:
        globals().update(declared_classes())
    elif name == "__all__":
        globals()[name] = _PUBLIC
    else:
        raise AttributeError(f"module 'sandmesh.tools' has no attribute {name!r}")
    found: object = globals()[name]
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return _PUBLIC
