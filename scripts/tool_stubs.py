"""Write what is made of the tools' declarations: the stubs for type checkers and the table of docs/tools.md.

With --check, fail where one of them is stale.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from sandmesh._tools import MODULES, PLUMBING, TOOLS, Tool, declared_classes
from sandmesh.sandbox.tools.tool_groups import mixin_name
from sandmesh.shared.sandbox_types import SANDBOX_TYPES

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = "docs/tools.md"
BEGIN: Final = "<!-- begin: the tools, written by `make stubs` -->"
END: Final = "<!-- end -->"
FUNCTIONS: Final = """\
from sandmesh._tools.declaration import PLUMBING, TOOLS, Tool, build, description, dump
from sandmesh._tools.forms import ToolSchema
from sandmesh._tools.validation import input_schema, parse
from sandmesh.toolkits.functions import DeclaredTool, SandboxTool, ToolFunction
from sandmesh.toolkits.local_functions import FunctionTool, function_tool
from sandmesh.toolkits.mcp_tools import MCPConfigConverter, McpTool
"""
METHODS: Final = """\
from collections.abc import Mapping
from typing import Final

from sandmesh.sandbox.tools.tool_calls import tool_method
"""
OTHERS: Final = [
    "PLUMBING", "TOOLS", "FunctionTool", "MCPConfigConverter", "McpTool", "SandboxTool", "Tool", "ToolFunction",
    "ToolSchema", "build", "description", "dump", "function_tool", "input_schema", "parse",
]  # fmt: skip


def functions_stub() -> str:
    """Return `sandmesh/tools.pyi`: the declarations, and a function for each tool that models are shown."""
    names = sorted(name for name, declaration in TOOLS.items() if declaration.group not in PLUMBING)
    public = ",\n".join(f'    "{name}"' for name in sorted({*OTHERS, *names, *declared_classes()}))
    lines = [*imports(set(declared_classes())), FUNCTIONS, *(f"{name}: DeclaredTool" for name in names)]
    return "\n".join([*lines, f"__all__ = [\n{public},\n]"])


def methods_stub() -> str:
    """Return `sandmesh/sandbox/tools/tool_groups.pyi`: a class a group, with a method for each of its tools."""
    groups = sorted({declaration.group for declaration in TOOLS.values()} - PLUMBING)
    methods = {group: [tool for tool in TOOLS.values() if tool.methods_of == group] for group in groups}
    lines = [METHODS, *imports({one.__name__ for found in methods.values() for one in found})]
    for group, found in methods.items():
        lines += [f"class {mixin_name(group)}:", *(f"    {one.name} = tool_method({one.__name__})" for one in found)]
    return "\n".join([*lines, "MIXINS: Final[Mapping[str, type]]", "def mixin_name(group: str) -> str: ..."])


def imports(wanted: set[str]) -> Iterator[str]:
    """Yield the imports of declared classes."""
    for module in MODULES:
        names = sorted(name for name, one in declared_classes().items() if one.__module__ == module.__name__)
        if found := [name for name in names if name in wanted]:
            yield f"from {module.__name__} import {', '.join(found)}"


def formatted(stub: str, name: str) -> str:
    """Return a stub with sorted imports, as the formatter writes it."""
    text = f'"""Written by `make stubs` from the declarations of `sandmesh._tools`."""\n\n{stub}\n'
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check", "--select", "I,RUF022", "--fix", "--quiet"], ["format"]):
        whole = [ruff, *command, "--stdin-filename", name, "-"]
        text = subprocess.run(whole, input=text, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return text


def page() -> str:
    """Return the page with the table of tools."""
    text = (ROOT / PAGE).read_text()
    before, rest = text.split(f"{BEGIN}\n")
    _, after = rest.split(f"{END}\n")
    return "".join([before, f"{BEGIN}\n", *table(), f"{END}\n", after])


def table() -> Iterator[str]:
    """Yield the lines of the table: the types of sandboxes of each group, and its tools."""
    yield "| types | group | tools |\n| --- | --- | --- |\n"
    offered = [declaration for declaration in TOOLS.values() if declaration.group not in PLUMBING]

    def order(one: type[Tool]) -> tuple[int, str]:
        return min(at for at, groups in enumerate(SANDBOX_TYPES.values()) if one.group in groups), one.group

    for (_, group), found in groupby(sorted(offered, key=order), key=order):
        types = [f"`{name}`" for name, groups in SANDBOX_TYPES.items() if group in groups]
        yield f"| {', '.join(types)} | {group} | {', '.join(f'`{one.name}`' for one in found)} |\n"


def main() -> None:
    """Run the command line."""
    made = {name: formatted(stub(), name) for name, stub in STUBS.items()} | {PAGE: page()}
    stale = [name for name, text in made.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    if "--check" in sys.argv and stale:
        raise SystemExit(f"stale, run `make stubs`: {', '.join(stale)}")
    for name in stale:
        (ROOT / name).write_text(made[name])


STUBS: Final = {"sdk/sandmesh/tools.pyi": functions_stub, "sdk/sandmesh/sandbox/tools/tool_groups.pyi": methods_stub}

if __name__ == "__main__":
    main()
