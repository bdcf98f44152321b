"""The tools of this sandbox, each with its handler."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from sandmesh._tools import PLUMBING, TOOLS, Tool, description, input_schema, parse
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, ToolNotFound
from sandmeshd.agent.calls.call import Outcome, RunningCall

Handler = Callable[[Any, RunningCall], Awaitable[Outcome]]
"""Runs a declaration's instance; raises ToolFailure for a mistake of the user."""

_MOST_KNOWN: Final = 2000


@dataclass(frozen=True)
class Service:
    """A tool without a declaration: one that serves the SDK or the gateway, or one of the template's own."""

    read: Callable[[bytes], Any]
    """Reads the arguments; raises InvalidArgument."""

    run: Handler

    shown: pb.Tool | None = None
    """Its description for models; None: it is not for models and not listed."""


class Added(Protocol):
    """Tools that come and go while the sandbox runs."""

    def find(self, name: str) -> Handler | None:
        """Return the handler of a tool; it takes the arguments as they arrived."""
        ...

    def known(self) -> list[str]:
        """Return the names of all."""
        ...

    def listing(self, group: str) -> list[pb.Tool]:
        """Describe those of a group, or all."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether more may become known."""
        ...

    async def settled(self) -> None:
        """Wait until they are known."""
        ...


class Toolbox:
    """Tools by name. `checks` may reject a declaration's arguments before its call begins."""

    def __init__(
        self,
        handlers: Mapping[type[Tool], Handler],
        groups: Sequence[str],
        checks: Mapping[type[Tool], Callable[[Any], None]] | None = None,
        services: Mapping[str, Service] = MappingProxyType({}),
        added: Added | None = None,
    ) -> None:
        self.added = added
        available = {*groups, *PLUMBING}
        self._services = services
        self._tools = {
            name: (cls, handlers[cls]) for name, cls in TOOLS.items() if cls.group in available and cls in handlers
        }
        self._checks = checks or {}

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Return a tool's validated arguments and its handler.

        Raises:
            ToolNotFound: The sandbox has no such tool.
            InvalidArgument: The arguments do not match its declaration.
            CapabilityMissing: They need a capability that the sandbox does not have.
        """
        service = self._services.get(name)
        if service is not None:
            return service.read(arguments), service.run
        found = self._tools.get(name)
        if found is None:
            return self._prepare_added(name, arguments)
        declared = parse(found[0], arguments)
        if found[0] in self._checks:
            self._checks[found[0]](declared)
        return declared, found[1]

    def is_bounded(self, name: str) -> bool:
        """Return whether a template's bound on the time of calls applies to a tool: it does not to processes."""
        if name in self._services:
            return self._services[name].shown is not None
        return name not in self._tools or self._tools[name][0].group != "process"

    def _shown(self) -> list[pb.Tool]:
        return [service.shown for _, service in sorted(self._services.items()) if service.shown is not None]

    def _prepare_added(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        handler = self.added.find(name) if self.added is not None else None
        if handler is None:
            own = [name for name, (cls, _) in self._tools.items() if cls.group not in PLUMBING]
            own += [tool.name for tool in self._shown()]
            known = ",".join([*sorted(own), *(self.added.known() if self.added is not None else [])])
            raise ToolNotFound(f"this sandbox has no tool {name!r}; it has {known[:_MOST_KNOWN]}", {"known": known})
        return _checked(name, arguments), handler

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all that models are shown, by group and then name."""
        tools = sorted((cls.group, name, cls) for name, (cls, _) in self._tools.items())
        own = [_describe(cls) for of, _, cls in tools if _is_listed(of, group)]
        own += [tool for tool in self._shown() if group in ("", tool.group)]
        return pb.ListToolsResponse(tools=[*own, *(self.added.listing(group) if self.added is not None else [])])


def _checked(name: str, arguments: bytes) -> bytes:
    try:
        whole: object = json.loads(arguments or b"{}")
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict):
        raise InvalidArgument(f"the arguments of {name} must be one JSON object", {"tool": name})
    return arguments


def _is_listed(of: str, group: str) -> bool:
    return of == group or (not group and of not in PLUMBING)


def _describe(cls: type[Tool]) -> pb.Tool:
    schema = json.dumps(input_schema(cls)).encode()
    return pb.Tool(name=cls.name, group=cls.group, description=description(cls), input_schema_json=schema)
