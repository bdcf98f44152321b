"""Tools for the sandboxes themselves, for clients that were given them: list, make, switch, end."""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Annotated, Any

from mcp import types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandmesh import SandboxAsync
from sandmesh.errors import InvalidArgument
from sandmesh.shared.sandbox_types import DEFAULT_TYPE, SANDBOX_TYPES
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes

_TYPES = "Its type, like " + " or ".join(name for name, groups in SANDBOX_TYPES.items() if groups) + "."
SandboxId = Annotated[str, Field(min_length=1, description="The sandbox's id.")]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ListSandboxes(_Arguments):
    """List the sandboxes of this session, with the one that the other tools use now."""


class NewSandbox(_Arguments):
    """Make another sandbox; the other tools use it from now on."""

    sandbox_type: Annotated[str, Field(min_length=1, description=_TYPES)] = DEFAULT_TYPE


class SwitchSandbox(_Arguments):
    """Switch the other tools to another sandbox: one of this session, or one that already exists."""

    sandbox_id: SandboxId


class EndSandbox(_Arguments):
    """End a sandbox of this session, with its files; one that already existed before it is only detached."""

    sandbox_id: SandboxId


NAMES: dict[str, type[_Arguments]] = {
    "list_sandboxes": ListSandboxes,
    "new_sandbox": NewSandbox,
    "switch_sandbox": SwitchSandbox,
    "end_sandbox": EndSandbox,
}


def management_tools() -> list[types.Tool]:
    """Return the tools."""
    return [
        types.Tool(name=name, description=cleandoc(model.__doc__ or ""), input_schema=_schema(model))
        for name, model in NAMES.items()
    ]


async def manage(sandboxes: SessionSandboxes, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Run one of the tools; each answers with the sandboxes of this session.

    Raises:
        InvalidArgument: The arguments do not fit.
        SandmeshError: What a tool was called for cannot be done.
    """
    try:
        parsed = NAMES[name].model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
            for error in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"{name} was called with bad arguments: {problems}", {"tool": name}) from None
    await _run(sandboxes, parsed)
    listed = {"sandboxes": [_describe(sandboxes, box) for box in sandboxes.boxes]}
    return types.CallToolResult(
        content=[types.TextContent(text=json.dumps(listed, indent=2))], structured_content=listed
    )


async def _run(sandboxes: SessionSandboxes, arguments: _Arguments) -> None:
    match arguments:
        case NewSandbox():
            await sandboxes.make(arguments.sandbox_type)
        case SwitchSandbox():
            await sandboxes.use(arguments.sandbox_id)
        case EndSandbox():
            await sandboxes.end(arguments.sandbox_id)
        case _:
            pass


def _describe(sandboxes: SessionSandboxes, box: SandboxAsync) -> dict[str, object]:
    return {"sandbox_id": box.sandbox_id, "sandbox_type": box.sandbox_type, "in_use": box is sandboxes.current}


def _schema(model: type[_Arguments]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("description", None)
    return schema
