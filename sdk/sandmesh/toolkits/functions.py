"""Tools as functions: `run_ipython_cell(code="1+1")`, in a bound or passed sandbox, or one created for the call.

They are reached as `sandmesh.tools.NAME`. `FunctionTool` wraps a function of this program the same way.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, cast

from sandmesh._client.sync import run
from sandmesh._tools import TOOLS, Tool, build, description, dump, input_schema
from sandmesh._tools.forms import ToolSchema, write_reply
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import SandboxType
from sandmesh.replies import REPLY_CHARACTERS, read_reply_characters, shorten_result
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.sandbox.sync import Sandbox
from sandmesh.sandbox.tools.reply_files import ReplyFiles
from sandmesh.shared.sandbox_types import SANDBOX_TYPES, first_type, offers
from sandmesh.toolkits.annotations import docstring_of, signature_of


class ModelText(str):
    """The text of a result; `.result` is the result, whose attributes it has too: `.stdout`, `.exit_code`, ...

    An image is a placeholder in it: `sandmesh.integrations` has adapters that pass images to frameworks.
    """

    __slots__ = ("result",)

    result: ToolResult

    def __new__(cls, result: ToolResult) -> Self:
        """Write a result as text."""
        made = super().__new__(cls, write_reply("openai", "", result)["content"])
        made.result = result
        return made

    def __getnewargs__(self) -> tuple[ToolResult]:  # type: ignore[override]
        """Return what a copy is made of."""
        return (self.result,)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the result."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result, name)


class ToolFunction(ABC):
    """A tool that is called like a function, by keywords, and returns plain JSON."""

    def __init__(self, schema: ToolSchema, tool_type: str, sandbox_type: str) -> None:
        self._schema = schema
        self._tool_type = tool_type
        self._sandbox_type = sandbox_type
        # Frameworks and help() look for these in a function.
        self.__name__ = schema.name
        self.__doc__ = schema.description

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._schema.name

    @property
    def description(self) -> str:
        """The tool's description for a model."""
        return self._schema.description

    @property
    def tool_type(self) -> str:
        """The group of the tool: "generic", "filesystem", "function", ..."""
        return self._tool_type

    @property
    def sandbox_type(self) -> SandboxType | str:
        """The type of the sandboxes that are created for it."""
        return SandboxType.known(self._sandbox_type)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the format of OpenAI's function calling."""
        return self._schema.written("openai")

    def schema_as(self, form: str) -> dict[str, Any]:
        """Return the tool in a format: "mcp", "openai", "openai-responses" or "anthropic"."""
        return self._schema.written(form)

    @property
    @abstractmethod
    def sandbox(self) -> Sandbox | SandboxAsync | None:
        """The sandbox that it is bound to, None if it is unbound."""

    @abstractmethod
    def bind(self, sandbox: Sandbox | SandboxAsync) -> Self:
        """Return a copy of the tool that is bound to a sandbox."""

    @abstractmethod
    def __call__(self, *positional: Any, sandbox: Sandbox | None = None, **arguments: Any) -> ToolResult:
        """Run it and return its result."""

    @abstractmethod
    async def call_async(self, *positional: Any, sandbox: SandboxAsync | None = None, **arguments: Any) -> ToolResult:
        """Run it in this event loop and return its result."""

    def make_function(
        self, convert: Callable[[ToolResult], Any] = ModelText, *, reply_characters: int | None = None
    ) -> Callable[..., Any]:
        """Return a plain function with named and typed parameters, for frameworks that inspect these.

        It is a coroutine function if the tool has to be awaited. It returns what a model reads: by default the text of
        the result, a `str` whose attributes are also those of the result; `convert` makes something else of it. The
        text of the result has at most `reply_characters`, None: the bound of the box.

        Raises:
            InvalidArgument: The bound is not a whole number above 0.
        """
        shorten = _Shortener(self.sandbox, reply_characters)

        def call(*positional: Any, **arguments: Any) -> Any:
            return convert(shorten(self(*positional, **self._without_defaults(arguments))))

        async def call_async(*positional: Any, **arguments: Any) -> Any:
            result = await self.call_async(*positional, **self._without_defaults(arguments))
            return convert(await shorten.awaited(result))

        made: Any = call_async if self.is_async else call
        made.__name__ = made.__qualname__ = self.name
        made.__doc__ = docstring_of(self.description, self._schema.parameters)
        signature = signature_of(self._schema.parameters)
        made.__signature__ = signature
        made.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()} | {"return": str}
        return cast("Callable[..., Any]", made)

    @property
    def is_async(self) -> bool:
        """Whether it can only be awaited, by `call_async`."""
        return isinstance(self.sandbox, SandboxAsync)

    def _without_defaults(self, arguments: dict[str, Any]) -> dict[str, Any]:
        # Frameworks pass the defaults of a signature too, where None stands for an omitted argument.
        omitted = {
            name for name, one in signature_of(self._schema.parameters).parameters.items() if one.default is None
        }
        return {name: value for name, value in arguments.items() if value is not None or name not in omitted}

    def _named(self, positional: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        if not positional:
            return arguments
        try:
            return dict(signature_of(self._schema.parameters).bind_partial(*positional, **arguments).arguments)
        except TypeError as error:
            raise InvalidArgument(f"{self.name}: {error}", {"tool": self.name}) from None

    def __repr__(self) -> str:
        """Return its name and the type of its sandboxes."""
        return f"{type(self).__name__}(name={self.name!r}, sandbox_type={str(self.sandbox_type)!r})"


class _Shortener:
    """Bounds what a model is sent of results; in a bound sandbox the whole stays as a file."""

    def __init__(self, box: Sandbox | SandboxAsync | None, reply_characters: int | None) -> None:
        self._bound = None if reply_characters is None else read_reply_characters(reply_characters)
        twin = box.twin if isinstance(box, Sandbox) else box
        self._files = None if twin is None else ReplyFiles(twin)

    def __call__(self, result: ToolResult) -> ToolResult:
        """Return a result as a model is sent it."""
        if self._files is None:
            return shorten_result(result, self._bound or REPLY_CHARACTERS).result
        return run("ReplyFiles", self._files.shorten(result, self._bound))

    async def awaited(self, result: ToolResult) -> ToolResult:
        """Return it in this event loop."""
        return self(result) if self._files is None else await self._files.shorten(result, self._bound)


def new_box(sandbox_type: str) -> Sandbox:
    """Return a new box of a type, not started."""
    made = class_registry().class_of(sandbox_type)
    return Sandbox(sandbox_type=sandbox_type) if made is None else cast("type[Sandbox]", made)()


def new_box_async(sandbox_type: str) -> SandboxAsync:
    """Return a new async box of a type, not started."""
    made = class_registry().class_of(sandbox_type, is_async=True)
    return SandboxAsync(sandbox_type=sandbox_type) if made is None else cast("type[SandboxAsync]", made)()


class SandboxTool(ToolFunction):
    """A tool that runs in a sandbox: the one passed with the call, the bound one, or one made for the call."""

    def __init__(
        self,
        schema: ToolSchema,
        *,
        tool_type: str = "generic",
        sandbox_type: str = "base",
        sandbox: Sandbox | SandboxAsync | None = None,
    ) -> None:
        """Describe the tool and, optionally, bind it to a sandbox."""
        super().__init__(schema, tool_type, sandbox_type)
        self._sandbox = sandbox

    @classmethod
    def declared(cls, declaration: type[Tool], sandbox_type: str) -> DeclaredTool:
        """Build the tool of a declaration."""
        return DeclaredTool(declaration, sandbox_type)

    @property
    def sandbox(self) -> Sandbox | SandboxAsync | None:
        """The sandbox that it is bound to, None if it is unbound."""
        return self._sandbox

    def bind(self, sandbox: Sandbox | SandboxAsync) -> Self:
        """Return a copy of the tool that is bound to a sandbox.

        Raises:
            InvalidArgument: It is not a sandbox, or one of a type that does not offer the tool.
        """
        self._check(sandbox)
        return self._with(sandbox=sandbox)

    def __call__(self, *positional: Any, sandbox: Sandbox | None = None, **arguments: Any) -> ToolResult:
        """Run it and return its result.

        Raises:
            InvalidArgument: The arguments do not fit, or the sandbox is async: await `call_async`.
            SandmeshError: The mesh failed or refused.
        """
        named = self._checked(self._named(positional, arguments))
        target = self._target(sandbox)
        if isinstance(target, SandboxAsync):
            message = f"{self.name} is bound to an async sandbox: await {self.name}.call_async(...)"
            raise InvalidArgument(message, {"tool": self.name})
        if target is not None:
            return self._run(target, named)
        with new_box(self._sandbox_type) as box:
            self.prepare(box)
            return self._run(box, named)

    async def call_async(self, *positional: Any, sandbox: SandboxAsync | None = None, **arguments: Any) -> ToolResult:
        """Run it in this event loop and return its result, as `__call__` does."""
        named = self._checked(self._named(positional, arguments))
        target = self._target(sandbox)
        if isinstance(target, Sandbox):
            message = f"{self.name} is bound to a sync sandbox: call it, or pass an async one as sandbox="
            raise InvalidArgument(message, {"tool": self.name})
        if target is not None:
            return await self._run_async(target, named)
        async with new_box_async(self._sandbox_type) as box:
            await self.prepare_async(box)
            return await self._run_async(box, named)

    def prepare(self, sandbox: Sandbox) -> None:
        """Prepare a sandbox that was created for the call; subclasses install here what it lacks."""

    async def prepare_async(self, sandbox: SandboxAsync) -> None:
        """Prepare an async sandbox that was created for the call."""

    def _run(self, box: Sandbox, arguments: dict[str, Any]) -> ToolResult:
        return box.call_tool(self.name, arguments)

    async def _run_async(self, box: SandboxAsync, arguments: dict[str, Any]) -> ToolResult:
        return await box.call_tool(self.name, arguments)

    def _target(self, sandbox: object) -> Sandbox | SandboxAsync | None:
        if sandbox is None:
            return self._sandbox
        self._check(sandbox)
        return cast("Sandbox | SandboxAsync", sandbox)

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
    """A tool that every sandbox of a type has: its arguments are checked before a sandbox is created."""

    def __init__(self, declaration: type[Tool], sandbox_type: str) -> None:
        """Build it of its declaration."""
        schema = ToolSchema(declaration.name, description(declaration), input_schema(declaration))
        super().__init__(schema, tool_type=declaration.group, sandbox_type=sandbox_type)
        self._declaration = declaration

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return dump(build(self._declaration, **arguments))


def declared_functions() -> dict[str, DeclaredTool]:
    """Make a function of each tool that a built-in type offers, for the first such type."""
    offered = {group for groups in SANDBOX_TYPES.values() for group in groups}
    declarations = [declaration for declaration in TOOLS.values() if declaration.group in offered]
    return {declaration.name: DeclaredTool(declaration, first_type(declaration.group)) for declaration in declarations}
