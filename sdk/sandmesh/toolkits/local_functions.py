"""Functions of this program as tools: they run in this process, not in a sandbox, with its privileges."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Callable
from inspect import Parameter, cleandoc, getdoc, iscoroutinefunction, signature
from typing import Annotated, Any, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from sandmesh._tools.forms import ToolSchema
from sandmesh.errors import InvalidArgument
from sandmesh.results import ToolResult
from sandmesh.toolkits.functions import ToolFunction


class FunctionTool(ToolFunction):
    """A function of this program as a tool: `FunctionTool(add)(a=1, b=2).text == "3"`.

    The schema is derived from its parameters' types, and arguments are checked against them. An exception becomes a
    result with `is_error`, as a tool's own failures do.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        name: str | None = None,
        schema: dict[str, Any] | None = None,
        tool_type: str = "function",
        description: str | None = None,
    ) -> None:
        """Name and describe it, by default as the function is; `schema` replaces the one of its types.

        Raises:
            InvalidArgument: It is not a function, or has parameters without names.
        """
        self._func = func
        self._arguments = arguments_model(func)
        named = name or function_name(func)
        text = description or cleandoc(getdoc(_bare(func)) or f"Call {named}.")
        parameters = (schema or {}).get("parameters", schema) or arguments_schema(self._arguments)
        super().__init__(ToolSchema(named, text, parameters), tool_type, "dummy")

    @property
    def sandbox(self) -> None:
        """None: it runs in this process."""
        return

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return iscoroutinefunction(_bare(self._func))

    def bind(self, sandbox: object = None, **parameters: Any) -> Self:
        """Return a copy of the tool with some of its parameters bound; a sandbox is ignored."""
        del sandbox
        func = functools.partial(self._func, **parameters)
        return self.__class__(func, self.name, None, self.tool_type, self.description)

    def __call__(self, *positional: Any, sandbox: object = None, **arguments: Any) -> ToolResult:
        """Run it in this process and return its result; `sandbox` is ignored.

        Raises:
            InvalidArgument: The arguments do not fit its parameters, or it is a coroutine function: await `call_async`.
        """
        del sandbox
        if self.is_async:
            raise InvalidArgument(f"{self.name} is a coroutine function: await call_async(...)", {"tool": self.name})
        values = self._read(self._named(positional, arguments))
        try:
            return _result(self._func(**values))
        except Exception:
            return _failure()

    async def call_async(self, *positional: Any, sandbox: object = None, **arguments: Any) -> ToolResult:
        """Run it in this event loop; a plain function runs in a thread."""
        del sandbox
        if not self.is_async:
            return await asyncio.to_thread(self, *positional, **arguments)
        values = self._read(self._named(positional, arguments))
        try:
            return _result(await self._func(**values))
        except Exception:
            return _failure()

    def _read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        read = check_arguments(self.name, self._arguments, arguments)
        fields = self._arguments.model_fields
        values = {fields[name].alias or name: getattr(read, name) for name in read.model_fields_set if name in fields}
        return {**values, **(read.model_extra or {})}


def function_tool(
    name: str | None = None, description: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of the decorated function, as `FunctionTool` does."""

    def decorate(func: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(func, name=name, description=description, **options)

    return decorate


def function_name(func: Callable[..., Any]) -> str:
    """Return the name of a function or of a partial one."""
    return str(getattr(_bare(func), "__name__", type(func).__name__))


def arguments_model(func: Callable[..., Any]) -> type[BaseModel]:
    """Build the model of a function's arguments from the types of its parameters.

    Raises:
        InvalidArgument: It is not a function, or has parameters without names, or of types that JSON cannot represent.
    """
    if not callable(func):
        raise InvalidArgument(f"a tool is made of a function, not of {func!r}")
    bound = _bound(func)
    known = signature(func).parameters.values()
    hints = get_type_hints(_bare(func), include_extras=True)
    fields: dict[str, Any] = {}
    for number, one in enumerate(each for each in known if each.name not in bound):
        if one.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
            raise InvalidArgument(f"{function_name(func)}: {one.name} must be a parameter that can be passed by name")
        if one.kind is not Parameter.VAR_KEYWORD:
            # A generated name: pydantic's fields must not begin with an underscore or hide its methods.
            default = ... if one.default is Parameter.empty else one.default
            fields[f"p{number}"] = (Annotated[hints.get(one.name, Any), Field(alias=one.name)], default)
    extra = any(one.kind is Parameter.VAR_KEYWORD for one in known)
    config = ConfigDict(extra="allow" if extra else "forbid", arbitrary_types_allowed=True)
    return create_model(function_name(func), __config__=config, **fields)


def check_arguments(tool: str, model: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
    """Validate a tool's arguments.

    Raises:
        InvalidArgument: They do not fit; the message names each that does not.
    """
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"{tool} was called with bad arguments: {problems}", {"tool": tool}) from None


def arguments_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a function's arguments.

    Raises:
        InvalidArgument: A parameter is of a type that JSON cannot represent.
    """
    try:
        schema = model.model_json_schema(by_alias=True)
    except ValueError as error:
        raise InvalidArgument(f"{model.__name__} has a parameter that JSON cannot represent: {error}") from None
    for about in schema.get("properties", {}).values():
        about.pop("title", None)
    return schema


def _bare(func: Callable[..., Any]) -> Callable[..., Any]:
    partial = _as_partial(func)
    return func if partial is None else partial.func


def _bound(func: Callable[..., Any]) -> dict[str, Any]:
    partial = _as_partial(func)
    return {} if partial is None else partial.keywords


def _as_partial(func: object) -> functools.partial[Any] | None:
    return func if isinstance(func, functools.partial) else None  # pyright: ignore[reportUnknownVariableType]  # of anything


def _result(value: object) -> ToolResult:
    return ToolResult({"meta": None, "content": [_block(str(value), "stdout")], "isError": False})


def _failure() -> ToolResult:
    return ToolResult({"meta": None, "content": [_block(traceback.format_exc(), "stderr")], "isError": True})


def _block(text: str, stream: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "annotations": None, "description": stream}
