"""Tools as functions: `run_ipython_cell(code="1+1")`, with a sandbox that is bound, given or made for the call.

They are reached as `sandmesh.tools.NAME`. `FunctionTool` makes the same of a function of this program.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Self, cast

from sandmesh._tools import TOOLS, Tool, build, description, dump, input_schema
from sandmesh._tools.forms import ToolSchema
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import SandboxType
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.sync import Sandbox
from sandmesh.shared.sandbox_types import SANDBOX_TYPES, first_type, offers

_PYTHON = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class ToolFunction(ABC):
    """A tool that is called as a function is: by keywords, and with a result that is plain JSON."""

    def __init__(self, schema: ToolSchema, tool_type: str, sandbox_type: str) -> None:
        self._schema = schema
        self._tool_type = tool_type
        self._sandbox_type = sandbox_type
        # What frameworks and help() look for in a function.
        self.__name__ = schema.name
        self.__doc__ = schema.description

    @property
    def name(self) -> str:
        """What it is called by."""
        return self._schema.name

    @property
    def description(self) -> str:
        """What it does, for a model."""
        return self._schema.description

    @property
    def tool_type(self) -> str:
        """The group of tools that it is of: "generic", "filesystem", "function", ..."""
        return self._tool_type

    @property
    def sandbox_type(self) -> SandboxType | str:
        """The type of the sandboxes that are made for it."""
        return SandboxType.known(self._sandbox_type)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's function calling is told of it."""
        return self._schema.written("openai")

    def schema_as(self, form: str) -> dict[str, Any]:
        """Give the tool in a form: "mcp", "openai" or "anthropic"."""
        return self._schema.written(form)

    @property
    @abstractmethod
    def sandbox(self) -> Sandbox | SandboxAsync | None:
        """The sandbox that it is bound to."""

    @abstractmethod
    def bind(self, sandbox: Sandbox | SandboxAsync) -> Self:
        """Give the same tool bound to a sandbox; this one stays as it is."""

    @abstractmethod
    def __call__(self, *positional: Any, sandbox: Sandbox | None = None, **arguments: Any) -> ToolResult:
        """Run it and give its result."""

    @abstractmethod
    async def call_async(self, *positional: Any, sandbox: SandboxAsync | None = None, **arguments: Any) -> ToolResult:
        """Run it in this event loop and give its result."""

    def make_function(self) -> Callable[..., ToolResult]:
        """Give a plain function with named and typed parameters, for frameworks that look at those."""

        def call(*positional: Any, **arguments: Any) -> ToolResult:
            return self(*positional, **arguments)

        call.__name__ = call.__qualname__ = self.name
        call.__doc__ = self.description
        call.__signature__ = made = _signature(self._schema.parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {name: one.annotation for name, one in made.parameters.items()} | {"return": ToolResult}
        return call

    def _named(self, positional: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        if not positional:
            return arguments
        try:
            return dict(_signature(self._schema.parameters).bind_partial(*positional, **arguments).arguments)
        except TypeError as error:
            raise InvalidArgument(f"{self.name}: {error}", {"tool": self.name}) from None

    def __repr__(self) -> str:
        """Name it, and what it is for."""
        return f"{type(self).__name__}(name={self.name!r}, sandbox_type={str(self.sandbox_type)!r})"


def _signature(parameters: Mapping[str, Any]) -> Signature:
    required = parameters.get("required", ())
    properties = cast("dict[str, dict[str, Any]]", parameters.get("properties", {}))
    # A default of None is "not given": what a tool takes for it is in its schema.
    made = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if name in required else about.get("default"),
            annotation=_PYTHON.get(str(about.get("type")), Any),
        )
        for name, about in sorted(properties.items(), key=lambda item: item[0] not in required)
    ]
    return Signature(made, return_annotation=ToolResult)


def new_box(sandbox_type: str) -> Sandbox:
    """Give a box of a type, not started."""
    made = class_registry().class_of(sandbox_type)
    return Sandbox(sandbox_type=sandbox_type) if made is None else cast("type[Sandbox]", made)()


def new_box_async(sandbox_type: str) -> SandboxAsync:
    """Give a box of a type for an event loop, not started."""
    made = class_registry().class_of(sandbox_type, is_async=True)
    return SandboxAsync(sandbox_type=sandbox_type) if made is None else cast("type[SandboxAsync]", made)()


class SandboxTool(ToolFunction):
    """A tool that runs in a sandbox: the one given with the call, else the bound one, else one made for the call."""

    def __init__(
        self,
        schema: ToolSchema,
        *,
        tool_type: str = "generic",
        sandbox_type: str = "base",
        sandbox: Sandbox | SandboxAsync | None = None,
    ) -> None:
        """Say what the tool is and, perhaps, where it runs."""
        super().__init__(schema, tool_type, sandbox_type)
        self._sandbox = sandbox

    @classmethod
    def declared(cls, declaration: type[Tool], sandbox_type: str) -> DeclaredTool:
        """Make one of a tool's declaration."""
        return DeclaredTool(declaration, sandbox_type)

    @property
    def sandbox(self) -> Sandbox | SandboxAsync | None:
        """The sandbox that it is bound to."""
        return self._sandbox

    def bind(self, sandbox: Sandbox | SandboxAsync) -> Self:
        """Give the same tool bound to a sandbox; this one stays as it is.

        Raises:
            InvalidArgument: It is no sandbox, or one of a type that does not have the tool.
        """
        self._check(sandbox)
        return self._with(sandbox=sandbox)

    def __call__(self, *positional: Any, sandbox: Sandbox | None = None, **arguments: Any) -> ToolResult:
        """Run it and give its result.

        Raises:
            InvalidArgument: The arguments do not fit, or the sandbox is an async one: await `call_async`.
            SandmeshError: The mesh could not or may not do it.
        """
        named = self._checked(self._named(positional, arguments))
        where = self._where(sandbox)
        if isinstance(where, SandboxAsync):
            message = f"{self.name} is bound to an async sandbox: await {self.name}.call_async(...)"
            raise InvalidArgument(message, {"tool": self.name})
        if where is not None:
            return self._run(where, named)
        with new_box(self._sandbox_type) as box:
            self.prepare(box)
            return self._run(box, named)

    async def call_async(self, *positional: Any, sandbox: SandboxAsync | None = None, **arguments: Any) -> ToolResult:
        """Run it in this event loop and give its result, as `__call__` does."""
        named = self._checked(self._named(positional, arguments))
        where = self._where(sandbox)
        if isinstance(where, Sandbox):
            message = f"{self.name} is bound to a sandbox that blocks: call it, or give sandbox= an async one"
            raise InvalidArgument(message, {"tool": self.name})
        if where is not None:
            return await self._run_async(where, named)
        async with new_box_async(self._sandbox_type) as box:
            await self.prepare_async(box)
            return await self._run_async(box, named)

    def prepare(self, sandbox: Sandbox) -> None:
        """Do nothing: tools that a new sandbox does not have by itself are given to it here."""

    async def prepare_async(self, sandbox: SandboxAsync) -> None:
        """Do what `prepare` does, in this event loop."""

    def _run(self, box: Sandbox, arguments: dict[str, Any]) -> ToolResult:
        return box.call_tool(self.name, arguments)

    async def _run_async(self, box: SandboxAsync, arguments: dict[str, Any]) -> ToolResult:
        return await box.call_tool(self.name, arguments)

    def _where(self, given: object) -> Sandbox | SandboxAsync | None:
        if given is None:
            return self._sandbox
        self._check(given)
        return cast("Sandbox | SandboxAsync", given)

    def _check(self, sandbox: object) -> None:
        if not isinstance(sandbox, Sandbox | SandboxAsync):
            raise InvalidArgument(f"{self.name} runs in a sandbox, not in {sandbox!r}", {"tool": self.name})
        actual = str(sandbox.sandbox_type)
        if not offers(actual, self._sandbox_type):
            message = f"{self.name} needs a sandbox of the type {self._sandbox_type}; this one is {actual}"
            raise InvalidArgument(message, {"tool": self.name, "sandbox_type": actual})

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def _with(self, **changed: object) -> Self:
        made = copy.copy(self)
        for name, value in changed.items():
            setattr(made, f"_{name}", value)
        return made


class DeclaredTool(SandboxTool):
    """A tool that every sandbox of a type has: its arguments are checked before a sandbox is made."""

    def __init__(self, declaration: type[Tool], sandbox_type: str) -> None:
        """Make it of its declaration."""
        schema = ToolSchema(declaration.name, description(declaration), input_schema(declaration))
        super().__init__(schema, tool_type=declaration.group, sandbox_type=sandbox_type)
        self._declaration = declaration

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return dump(build(self._declaration, **arguments))


def declared_functions() -> dict[str, DeclaredTool]:
    """Make a function of each tool that a built-in type offers, for the first such type."""
    offered = {group for groups in SANDBOX_TYPES.values() for group in groups}
    declarations = [declaration for declaration in TOOLS.values() if declaration.group in offered]
    return {one.name: DeclaredTool(one, first_type(one.group)) for one in declarations}
