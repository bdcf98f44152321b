"""The tools that this sandbox has, each with what runs it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import ToolNotFound
from sandmesh.tools import TOOLS, Tool, description, input_schema, parse
from sandmeshd.agent.call import Call, Outcome

Handler = Callable[[Any, Call], Awaitable[Outcome]]
"""Runs a declaration's instance; raises ToolFailure for what the user did wrong."""


class Toolbox:
    """Tools by name."""

    def __init__(self, handlers: Mapping[type[Tool], Handler], groups: Sequence[str]) -> None:
        self._tools = {
            name: (cls, handlers[cls]) for name, cls in TOOLS.items() if cls.group in groups and cls in handlers
        }

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Give a tool's checked arguments and its handler.

        Raises:
            ToolNotFound: There is no such tool here.
            InvalidArgument: The arguments do not fit it.
        """
        found = self._tools.get(name)
        if found is None:
            known = ",".join(sorted(self._tools))
            raise ToolNotFound(f"this sandbox has no tool {name!r}; it has {known}", {"known": known})
        return parse(found[0], arguments), found[1]

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all, by group and then name."""
        tools = sorted((cls.group, name, cls) for name, (cls, _) in self._tools.items())
        return pb.ListToolsResponse(tools=[_describe(cls) for of, _, cls in tools if group in {"", of}])


def _describe(cls: type[Tool]) -> pb.Tool:
    schema = json.dumps(input_schema(cls)).encode()
    return pb.Tool(name=cls.name, group=cls.group, description=description(cls), input_schema_json=schema)
