"""Tools for the sandboxes themselves, for clients that were given them: list, make, switch, pause, fork, end."""

from __future__ import annotations

import asyncio
import json
from inspect import cleandoc
from typing import Annotated, Any, Final, Literal

from mcp import types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandmesh import SandboxAsync
from sandmesh.errors import InvalidArgument
from sandmesh.sandbox.kernels import Forks
from sandmesh.shared.sandbox_types import DEFAULT_TYPE, SANDBOX_TYPES
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes

_TYPES = "Its type, like " + " or ".join(name for name, groups in SANDBOX_TYPES.items() if groups) + "."
MOST_FORKS: Final = 8
"""A model can hold few apart."""
_MOST_NAMES: Final = 20
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


class PauseSandbox(_Arguments):
    """Pause a sandbox of this session; the next tool that uses it resumes it. Its time to live goes on."""

    sandbox_id: SandboxId
    mode: Annotated[
        Literal["memory", "files"],
        Field(description="memory freezes its processes as they are; files ends them and keeps what they wrote."),
    ] = "memory"


class ResumeSandbox(_Arguments):
    """Resume a paused sandbox of this session; one that runs stays as it is."""

    sandbox_id: SandboxId


class ForkSandbox(_Arguments):
    """Copy a sandbox with its files and Python variables into new ones, to try several ways from the same state.

    The other tools go on using the same sandbox as before: switch to a copy by its id, and end those that you do not
    need. `not_copied` names what copies lack, such as running processes.
    """

    sandbox_id: SandboxId
    count: Annotated[int, Field(ge=1, le=MOST_FORKS, description="How many copies.")] = 1


NAMES: dict[str, type[_Arguments]] = {
    "list_sandboxes": ListSandboxes,
    "new_sandbox": NewSandbox,
    "switch_sandbox": SwitchSandbox,
    "pause_sandbox": PauseSandbox,
    "resume_sandbox": ResumeSandbox,
    "fork_sandbox": ForkSandbox,
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
    facts = await _run(sandboxes, parsed)
    listed = {"sandboxes": await asyncio.gather(*(_describe(sandboxes, box) for box in sandboxes.boxes)), **facts}
    return types.CallToolResult(
        content=[types.TextContent(text=json.dumps(listed, indent=2))], structured_content=listed
    )


async def _run(sandboxes: SessionSandboxes, arguments: _Arguments) -> dict[str, object]:
    """Run the operation that a tool names; return its answer without the list of sandboxes."""
    match arguments:
        case NewSandbox():
            await sandboxes.make(arguments.sandbox_type)
        case SwitchSandbox():
            await sandboxes.use(arguments.sandbox_id)
        case PauseSandbox():
            await sandboxes.find(arguments.sandbox_id).pause(arguments.mode)
        case ResumeSandbox():
            await sandboxes.find(arguments.sandbox_id).resume()
        case ForkSandbox():
            return _forked(await sandboxes.fork(arguments.sandbox_id, arguments.count))
        case EndSandbox():
            await sandboxes.end(arguments.sandbox_id)
        case _:
            pass
    return {}


def _forked(forks: Forks[SandboxAsync]) -> dict[str, object]:
    error = {} if forks.error is None else {"error": str(forks.error)}
    more = len(forks.not_copied) - _MOST_NAMES
    not_copied = [*forks.not_copied[:_MOST_NAMES], *([f"{more} more"] if more > 0 else [])]
    return {"forks": [box.sandbox_id for box in forks], "not_copied": not_copied, **error}


async def _describe(sandboxes: SessionSandboxes, box: SandboxAsync) -> dict[str, object]:
    return {
        "sandbox_id": box.sandbox_id,
        "sandbox_type": box.sandbox_type,
        "state": await box.get_status(),
        "in_use": box is sandboxes.current,
    }


def _schema(model: type[_Arguments]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("description", None)
    return schema
