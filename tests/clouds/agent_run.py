"""AgentRun's API and gateway, as far as the driver uses them: a runtime is billed from its create to its delete."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from tests.clouds.region import Fault, Launch, Region, Session, header, launcher, path_of, serving
from tests.unit.agent.sandbox import Ground

VERSION = "/2025-09-10/agents/runtimes"
UNIQUE = "agentRuntimeName"


@dataclass
class Runtime:
    """A runtime."""

    body: dict[str, Any]
    session: Session
    pending: int
    """How many more requests for it alone find it CREATING."""
    endpoints: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    user: str = ""
    """The id of the session that began its instance; one of another id would begin another instance."""


@dataclass
class StandIn(Region):
    """One region."""

    mutations: ClassVar[tuple[str, ...]] = (
        "CreateAgentRuntime",
        "CreateAgentRuntimeEndpoint",
        "DeleteAgentRuntimeEndpoint",
        "DeleteAgentRuntime",
    )

    runtimes: dict[str, Runtime] = field(default_factory=dict[str, Runtime])

    def session_of(self, sandbox_id: str) -> Session:
        """Return the session of a sandbox that lives."""
        return next(machine for machine in self.living if machine.body["description"].endswith(f" {sandbox_id}"))

    def shape(self, fault: Fault, request_id: str) -> dict[str, Any]:
        """Return an error as the API answers it."""
        return {"code": fault.code, "message": fault.message, "requestId": request_id}

    async def act(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any] | None:
        """Do what a request asks for."""
        parts = [part for part in request.path.removeprefix(VERSION).split("/") if part]
        if not parts:
            return _answer(self._create(body) if request.method == "POST" else self._list(request))
        runtime = self._runtime(parts[0])
        if len(parts) == 1:
            if request.method == "DELETE":
                self._delete(parts[0])
            shown = self._shown(parts[0], runtime)
            runtime.pending -= 1
            return _answer(shown)
        return _answer(self._endpoints(request, parts, runtime, body))

    def _runtime(self, name: str) -> Runtime:
        if name not in self.runtimes:
            raise Fault(404, "AgentRuntimeNotFound")
        return self.runtimes[name]

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        if any(runtime.body[UNIQUE] == body[UNIQUE] for runtime in self.runtimes.values()):
            raise Fault(409, "AgentRuntimeAlreadyExists")
        if body["networkConfiguration"] != {"networkMode": "PRIVATE"}:
            raise Fault(400, "InvalidArgument", "the network is not shut")
        name = f"ar-{secrets.token_hex(6)}"
        container = {**body["containerConfiguration"], **{key: body[key] for key in ("port", "cpu", "memory")}}
        session = self.begin(Session(name, body), container)
        self.runtimes[name] = Runtime(body, session, self.pending)
        return self._shown(name, self.runtimes[name])

    def _shown(self, name: str, runtime: Runtime) -> dict[str, Any]:
        status = "CREATING" if runtime.pending > 0 else self.state or "READY"
        shown = {"agentRuntimeId": name, "status": status, "createdAt": runtime.session.made}
        return {**runtime.body, **shown, "statusReason": f"the image is {status}"}

    def _list(self, request: web.Request) -> dict[str, Any]:
        # Its filter finds parts of names.
        wanted = request.query.get(UNIQUE, "")
        items = [self._shown(name, one) for name, one in sorted(self.runtimes.items()) if wanted in one.body[UNIQUE]]
        return _page(request, items)

    def _delete(self, name: str) -> None:
        runtime = self.runtimes[name]
        if runtime.endpoints:
            raise Fault(409, "AgentRuntimeHasEndpoints")
        del self.runtimes[name]
        self.finish(runtime.session, "Deleted")

    def _endpoints(
        self, request: web.Request, parts: list[str], runtime: Runtime, body: dict[str, Any]
    ) -> dict[str, Any]:
        if len(parts) == 2:
            if request.method != "POST":
                return _page(request, list(runtime.endpoints.values()))
            if runtime.endpoints:
                raise Fault(409, "EndpointAlreadyExists")
            name = f"are-{secrets.token_hex(6)}"
            url = f"https://{self.host}:{self.gateway}/{parts[0]}/invoke"
            made = {**body, "agentRuntimeEndpointId": name, "endpointPublicUrl": url, "status": "READY"}
            runtime.endpoints[name] = made
            return made
        if parts[2] not in runtime.endpoints:
            raise Fault(404, "EndpointNotFound")
        return runtime.endpoints.pop(parts[2]) if request.method == "DELETE" else runtime.endpoints[parts[2]]

    def routed(self, head: str) -> Session:
        """Return the runtime's session; each has one, to whoever names it first."""
        runtime = self._runtime(path_of(head))
        wanted = header(head, str(runtime.body["headerFieldName"]))
        runtime.user = runtime.user or wanted
        if runtime.user != wanted:
            raise Fault(400, "InvalidArgument", "another session has this runtime")
        return runtime.session


def _answer(data: dict[str, Any]) -> dict[str, Any]:
    return {"code": "SUCCESS", "requestId": secrets.token_hex(8), "data": data}


def _page(request: web.Request, items: list[dict[str, Any]]) -> dict[str, Any]:
    number, size = int(request.query.get("pageNumber") or 1), int(request.query.get("pageSize") or 10)
    begin = (number - 1) * size
    return {"items": items[begin : begin + size], "total": len(items), "pageNumber": number, "pageSize": size}


@asynccontextmanager
async def stand_in(folder: Path, ground: Ground | None = None, launch: Launch | None = None) -> AsyncGenerator[StandIn]:
    """Serve a region, as `serving`; instances are started on a ground, or as `launch` does."""
    async with serving(StandIn(launch or launcher(ground, folder)), folder) as made:
        yield made
