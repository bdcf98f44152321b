"""The reference of the SDK, from its docstrings: pages of directives that mkdocstrings fills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import sandmesh
import sandmesh.tools
from sandmesh._tools import PLUMBING, TOOLS

PAGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "sandboxes": (
        "Sandboxes",
        (
            *("SandboxAsync", "BaseSandboxAsync", "FilesystemSandboxAsync", "BrowserSandboxAsync", "GuiSandboxAsync"),
            *("MobileSandboxAsync", "DummySandbox"),
        ),
    ),
    "training": (
        "Training",
        (
            "TrainingSandboxAsync",
            "BFCLSandboxAsync",
            "APPWorldSandboxAsync",
            "Environment",
            "EnvironmentRefusal",
            "InstanceFailed",
        ),
    ),
    "processes": (
        "Processes and kernels",
        (
            "ProcessesAsync",
            "ProcessAsync",
            "ProcessInfo",
            "KernelsAsync",
            "KernelAsync",
            "KernelInfo",
            "KernelMark",
            "SandboxMark",
            "Forks",
        ),
    ),
    "results": (
        "Results and events",
        (
            "Result",
            "ToolResult",
            "ContentBlock",
            "CallEvent",
            "Started",
            "Output",
            "Dropped",
            "Cleared",
            "Progress",
            "InputRequested",
            "ToolsChanged",
        ),
    ),
    "options": (
        "Options of a sandbox",
        (
            "Limits",
            "NetworkGrant",
            "Secret",
            "McpServer",
            "Snapshot",
            "CallSummary",
            "SandboxStats",
            "StatsSample",
            "RegistryLogin",
            "Image",
            "BuiltImage",
        ),
    ),
    "sessions": (
        "Sessions and types",
        ("SandboxService", "SessionInfo", "SandboxConfig", "SandboxRegistry", "SandboxType", "build_image_uri"),
    ),
    "toolkits": ("Tools for models", ("ToolkitAsync", "sandbox_tool")),
    "mesh": ("The client of a mesh", ("MeshAsync",)),
}
"""The pages: the title, and the names of `sandmesh` that are on it."""
MODULES: Final = {"tools": "Tools as functions", "errors": "Errors"}
"""Public modules with a page of their own."""
HEAD: Final = """# SDK reference

Made from the docstrings. A class whose name ends in `Async` has a twin without that ending and with the same methods,
blocking: `BaseSandbox` for `BaseSandboxAsync`, `Mesh` for `MeshAsync`.

"""


def blocking_twins() -> set[str]:
    """Return the names whose asynchronous twin has the documentation."""
    names = set(sandmesh.__all__)
    return {name for name in names if f"{name}Async" in names}


def left_out() -> set[str]:
    """Return the public names that no page has: none, or the reference lacks something."""
    shown = {name for _, names in PAGES.values() for name in names}
    return set(sandmesh.__all__) - shown - blocking_twins() - MODULES.keys() - {"__version__", "SandmeshError"}


def write_reference(folder: Path) -> None:
    """Write the pages of directives, and their index."""
    folder.mkdir(parents=True)
    rows: list[str] = []
    for name, (title, names) in PAGES.items():
        directives = "\n".join(f"::: sandmesh.{one}\n" for one in names if one in sandmesh.__all__)
        (folder / f"{name}.md").write_text(f"# {title}\n\n{directives}")
        rows.append(f"| [{title}]({name}.md) | {', '.join(f'`{one}`' for one in names)} |")
    for module, title in MODULES.items():
        text = f"::: sandmesh.{module}\n" if module == "errors" else "\n".join(_tools())
        (folder / f"{module}.md").write_text(f"# {title}\n\n{text}")
        rows.append(f"| [{title}]({module}.md) | `sandmesh.{module}` |")
    (folder / "index.md").write_text(HEAD + "\n".join(["| page | names |", "| --- | --- |", *rows, ""]))


def _tools() -> Iterator[str]:
    """Yield the reference of every tool: a method of sandboxes, and a function of `sandmesh.tools`."""
    yield "Each is a method of sandboxes that have it, and a function of `sandmesh.tools` ([how](../../tools.md)).\n"
    for name in sorted(name for name, declaration in TOOLS.items() if declaration.group not in PLUMBING):
        function = getattr(sandmesh.tools, name).schema["function"]
        yield f"## {name}\n\n{function['description']}\n"
        required = function["parameters"].get("required", ())
        if function["parameters"]["properties"]:
            yield "| argument | type | |\n| --- | --- | --- |"
        for argument, schema in function["parameters"]["properties"].items():
            text = " ".join(f"{schema.get('description', '')}{'' if argument in required else ' Optional.'}".split())
            yield f"| `{argument}` | {_type(schema)} | {text.replace('|', '&#124;').replace('<', '&lt;')} |"
        yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of an argument in JSON Schema's words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = str(schema.get("type", "any"))
    return f"array of {_type(schema['items'])}" if kind == "array" and "items" in schema else kind
