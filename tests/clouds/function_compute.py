"""Function Compute's API and gateway, as far as the driver uses them, with a ledger of what would be billed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from tests.clouds.region import KEYS, Fault, Launch, Region, Session, header, launcher, path_of, serving
from tests.unit.agent.sandbox import Ground

__all__ = ["KEYS", "StandIn", "stand_in"]

VERSION = "/2023-03-30"


@dataclass
class Function:
    """A function."""

    body: dict[str, Any]
    pending: int = 0
    """How often it is still reported as Pending."""
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])


@dataclass
class StandIn(Region):
    """One region."""

    mutations: ClassVar[tuple[str, ...]] = ("CreateFunction", "CreateTrigger", "CreateSession", "DeleteSession")

    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    used: set[str] = field(default_factory=set[str])
    """Ids of sessions that were."""

    def session_of(self, sandbox_id: str) -> Session:
        """Return the session of a sandbox that lives."""
        return next(machine for machine in self.living if f"-{sandbox_id}-" in machine.body["sessionId"])

    def shape(self, fault: Fault, request_id: str) -> dict[str, Any]:
        """Return an error in one of the API's two shapes."""
        names = ("Code", "Message", "RequestId") if fault.status < 429 else ("errorCode", "errorMessage", "requestId")
        return dict(zip(names, (fault.code, fault.message, request_id), strict=True))

    async def act(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any] | None:
        """Do what a request asks for."""
        parts = request.path.removeprefix(f"{VERSION}/functions").strip("/").split("/")
        if parts == [""]:
            return self._create_function(body) if request.method == "POST" else self._list_functions(request)
        function = self._function(parts[0])
        if len(parts) == 1:
            if request.method == "DELETE":
                self._delete_function(parts[0], function)
                return None
            return self._get_function(function)
        kind = {"triggers": self._triggers, "sessions": self._sessions}[parts[1]]
        return kind(request, function, parts[2] if len(parts) > 2 else "", body)

    def _function(self, name: str) -> Function:
        if name not in self.functions:
            raise Fault(404, "FunctionNotFound")
        return self.functions[name]

    def _create_function(self, body: dict[str, Any]) -> dict[str, Any]:
        ratio = body["memorySize"] / 1024 / body["cpu"]
        if body["memorySize"] % 64 or round(body["cpu"] * 1000) % 50 or not 1 <= ratio <= 4.01:
            raise Fault(400, "InvalidArgument", f"no such size: {body['cpu']}, {body['memorySize']}")
        if body["functionName"] in self.functions:
            raise Fault(409, "FunctionAlreadyExists")
        self.functions[body["functionName"]] = Function(body, self.pending)
        return body

    def _get_function(self, function: Function) -> dict[str, Any]:
        if function.pending:
            function.pending -= 1
            return {**function.body, "state": "Pending"}
        return {**function.body, "state": self.state or "Active", "stateReason": f"the image is {self.state}"}

    def _list_functions(self, request: web.Request) -> dict[str, Any]:
        names = sorted(name for name in self.functions if name.startswith(request.query.get("prefix", "")))
        return _page(request, [self.functions[name].body for name in names], "functions")

    def _delete_function(self, name: str, function: Function) -> None:
        if function.triggers or any(session.status == "Active" for session in function.sessions.values()):
            raise Fault(409, "FunctionHasTriggersOrSessions")
        del self.functions[name]

    def _triggers(
        self, request: web.Request, function: Function, name: str, body: dict[str, Any]
    ) -> dict[str, Any] | None:
        if request.method == "POST":
            if function.triggers:
                raise Fault(409, "TriggerAlreadyExists")
            path = function.body["functionName"]
            url = {"urlInternet": f"https://{self.host}:{self.gateway}/{path}", "urlIntranet": ""}
            function.triggers[body["triggerName"]] = {**body, "httpTrigger": url}
            return function.triggers[body["triggerName"]]
        if name not in function.triggers:
            raise Fault(404, "TriggerNotFound")
        if request.method == "DELETE":
            del function.triggers[name]
            return None
        return function.triggers[name]

    def _sessions(
        self, request: web.Request, function: Function, name: str, body: dict[str, Any]
    ) -> dict[str, Any] | None:
        if request.method == "POST":
            if body["sessionId"] in self.used:
                raise Fault(409, "SessionAlreadyExists")
            return _shown(self._begin(function, body))
        if request.method == "DELETE":
            found = function.sessions.pop(name, None)
            if found is None:
                raise Fault(404, "SessionNotFound")
            self.finish(found, "Deleted")
            return None
        wanted = request.query.get("sessionId")
        listed = [_shown(one) for key, one in sorted(function.sessions.items()) if wanted in (None, key)]
        return _page(request, listed, "sessions")

    def _begin(self, function: Function, body: dict[str, Any]) -> Session:
        made = Session(function.body["functionName"], body)
        function.sessions[body["sessionId"]] = made
        self.used.add(body["sessionId"])
        size = {"cpu": function.body["cpu"], "memory": function.body["memorySize"]}
        return self.begin(made, {**function.body["customContainerConfig"], **size}, body["sessionTTLInSeconds"])

    def routed(self, head: str) -> Session:
        """Return the session that a request's path and header name."""
        function = self._function(path_of(head))
        config = json.loads(function.body["sessionAffinityConfig"])
        wanted = header(head, str(config["affinityHeaderFieldName"]))
        session = function.sessions.get(wanted)
        if session is not None and session.status == "Active":
            return session
        if wanted in self.used:
            raise Fault(404, "SessionNotFound", "the session ended, and its id is not used again")
        # A session that nobody made begins with the first request, and is billed.
        return self._begin(function, {"sessionId": wanted, **config})


def _shown(session: Session) -> dict[str, Any]:
    shown = {"functionName": session.resource, "sessionStatus": session.status, "createdTime": session.made}
    return {**session.body, **shown}


def _page(request: web.Request, items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    begin, limit = int(request.query.get("nextToken") or 0), int(request.query.get("limit") or 20)
    rest = {"nextToken": str(begin + limit)} if len(items) > begin + limit else {}
    return {name: items[begin : begin + limit], **rest}


@asynccontextmanager
async def stand_in(folder: Path, ground: Ground | None = None, launch: Launch | None = None) -> AsyncGenerator[StandIn]:
    """Serve a region, as `serving`; instances are started on a ground, or as `launch` does."""
    async with serving(StandIn(launch or launcher(ground, folder)), folder) as made:
        yield made
