"""A class's own tools: Python functions that run inside its sandboxes.

Only the function's source is shipped: no closure, no name of its module, no decorator and no annotation.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Self, cast

from sandmesh._tools import TOOLS
from sandmesh._tools.forms import ToolSchema
from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.sync import Sandbox
from sandmesh.toolkits.functions import SandboxTool
from sandmesh.toolkits.local_functions import arguments_model, arguments_schema, check_arguments

LONGEST = 256 * 1024


class InsideTool(SandboxTool):
    """A function of a sandbox class that runs inside its sandboxes; its parameters' types make its schema."""

    def __init__(self, func: Callable[..., Any]) -> None:
        """Build it of a function.

        Raises:
            InvalidArgument: It cannot be shipped; the message says why and what to do.
        """
        self._function = _plain(func)
        self._source = shipped_source(self._function)
        self._arguments = arguments_model(self._function)
        name = self._function.__name__
        if name in TOOLS:
            raise InvalidArgument(f"every sandbox has a tool {name!r}: choose another name", {"tool": name})
        text = inspect.cleandoc(self._function.__doc__ or f"Call {name}.")
        schema = ToolSchema(name, text, arguments_schema(self._arguments))
        super().__init__(schema, tool_type="own", sandbox_type="base")

    def __get__(self, box: object, owner: type | None = None) -> Self:
        """Return the tool bound to the box, or on a class, made for the class's type."""
        sandbox_type = class_registry().type_of(type(box) if owner is None else owner)
        made = self._with(sandbox_type=sandbox_type or "base")
        return made if not isinstance(box, Sandbox | SandboxAsync) else made.bind(box)

    def __call__(self, *positional: Any, sandbox: Sandbox | None = None, **arguments: Any) -> Any:
        """Run it and return its result; on an async box, return an awaitable."""
        if sandbox is None and isinstance(self.sandbox, SandboxAsync):
            return self.call_async(*positional, **arguments)
        return super().__call__(*positional, sandbox=sandbox, **arguments)

    def definition(self) -> pb.ToolDefinition:
        """Return its definition for a template."""
        schema = json.dumps(self.schema_as("mcp")["inputSchema"]).encode()
        return pb.ToolDefinition(
            name=self.name, description=self.description, input_schema_json=schema, source=self._source
        )

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        check_arguments(self.name, self._arguments, arguments)
        return arguments


def sandbox_tool(func: Callable[..., Any]) -> InsideTool:
    """Make a function of a sandbox class a tool that runs inside the sandbox; write it above `@staticmethod`.

    Raises:
        InvalidArgument: It cannot be shipped; the message says why and what to do.
    """
    return InsideTool(func)


def shipped_source(func: FunctionType) -> str:
    """Return a function's source as it is shipped.

    Raises:
        InvalidArgument: It has none, or uses names from outside.
    """
    name = func.__name__
    if not name.isidentifier():
        raise InvalidArgument("a lambda cannot be shipped: write it with def", {"tool": name})
    free = sorted({*func.__code__.co_freevars, *_globals(func.__code__)} - {name})
    if free:
        message = f"{name} runs inside a sandbox, where there is no {', '.join(free)}: import or define it in {name}"
        raise InvalidArgument(message, {"tool": name, "names": ", ".join(free)})
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
    except (OSError, TypeError, SyntaxError) as error:
        raise InvalidArgument(f"{name} has no source that can be shipped ({error}): define it in a file") from None
    source = ast.unparse(_bare(name, tree))
    if len(source) > LONGEST:
        raise InvalidArgument(
            f"{name} has more than {LONGEST} characters: put what it needs into files", {"tool": name}
        )
    return source


def _plain(func: object) -> FunctionType:
    inner = cast("staticmethod[..., Any]", func).__func__ if isinstance(func, staticmethod) else func
    if not isinstance(inner, FunctionType):
        raise InvalidArgument(f"a tool is made of a function, not of {func!r}")
    return inner


def _globals(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL") and not hasattr(builtins, str(step.argval)):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _bare(name: str, tree: ast.Module) -> ast.Module:
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    function.decorator_list = []
    function.returns = None
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    for default in filter(None, (*function.args.defaults, *function.args.kw_defaults)):
        try:
            ast.literal_eval(default)
        except ValueError:
            raise InvalidArgument(f"{name}: a default must be a literal, not {ast.unparse(default)}") from None
    return ast.Module([function], [])
