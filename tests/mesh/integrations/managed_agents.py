"""The part of Claude Managed Agents' API that a self-hosted environment uses, written from the vendor's client.

A queue of work items, each with a session that asks for one command and ends once it has the result.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

ENVIRONMENT: Final = "env_test"
KEY: Final = "sk-ant-environment-real-4c1d"
NOW: Final = "2026-01-01T00:00:00Z"


@dataclass
class AgentSession:
    """A session: the command that its agent asks for, and what came back."""

    session_id: str
    command: str
    token: str = ""
    """The work item's own; empty: the item has none, and the environment's key is used."""
    result: str = ""
    seen: set[str] = field(default_factory=set[str])
    """The credentials of its requests."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class ManagedAgents:
    """The queue and its sessions."""

    queue: list[AgentSession] = field(default_factory=list[AgentSession])
    claimed: dict[str, AgentSession] = field(default_factory=dict[str, AgentSession])
    polls: set[str] = field(default_factory=set[str])
    """The credentials of polls."""

    def routes(self) -> list[web.RouteDef]:
        """Return what it serves."""
        work, session = f"/v1/environments/{ENVIRONMENT}/work", "/v1/sessions/{session}"
        return [
            web.get(f"{work}/poll", self.poll),
            web.post(f"{work}/{{work}}/ack", self.work),
            web.post(f"{work}/{{work}}/stop", self.stop),
            web.post(f"{work}/{{work}}/heartbeat", self.heartbeat),
            web.get(session, self.session),
            web.get(f"{session}/events", self.events),
            web.post(f"{session}/events", self.send),
            web.get(f"{session}/events/stream", self.stream),
        ]

    async def poll(self, request: web.Request) -> web.Response:
        """Hand out the next item."""
        self.polls.add(_credential(request))
        if _credential(request) != KEY:
            return _refused("invalid bearer token")
        if not self.queue:
            return web.json_response(None)
        taken = self.queue.pop(0)
        self.claimed[f"work_{taken.session_id}"] = taken
        return web.json_response(_item(taken))

    async def work(self, request: web.Request) -> web.Response:
        """Take an item's acknowledgement."""
        return web.json_response(_item(self.claimed[request.match_info["work"]]))

    async def stop(self, request: web.Request) -> web.Response:
        """End an item."""
        self._claimed(request).stopped.set()
        return await self.work(request)

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Keep an item's claim."""
        self._claimed(request)
        beat = {"last_heartbeat": NOW, "lease_extended": True, "state": "active", "ttl_seconds": 60}
        return web.json_response({**beat, "type": "work_heartbeat"})

    async def session(self, request: web.Request) -> web.Response:
        """Describe a session."""
        found = self._session(request)
        agent: dict[str, Any] = {"id": "agent_1", "type": "agent", "skills": [], "tools": [], "name": "a", "version": 1}
        described: dict[str, Any] = {"id": found.session_id, "type": "session", "status": "running", "agent": agent}
        return web.json_response({**described, "resources": [], "environment_id": ENVIRONMENT, "created_at": NOW})

    async def events(self, request: web.Request) -> web.Response:
        """List what happened before: nothing."""
        self._session(request)
        return web.json_response({"data": [], "next_page": None})

    async def send(self, request: web.Request) -> web.Response:
        """Take a tool's result."""
        found = self._session(request)
        body = await request.json()
        for event in body["events"]:
            if event["type"] == "user.tool_result":
                found.result = json.dumps(event["content"])
                found.answered.set()
        return web.json_response({"data": []})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Ask for the command; end the session once it has the result."""
        found = self._session(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        tool = {"type": "agent.tool_use", "id": f"sevt_{found.session_id}", "name": "bash", "processed_at": NOW}
        await response.write(_event({**tool, "input": {"command": found.command}, "evaluated_permission": "allow"}))
        await found.answered.wait()
        await response.write(_event({"type": "session.status_terminated", "id": "sevt_end", "processed_at": NOW}))
        return response

    def _claimed(self, request: web.Request) -> AgentSession:
        found = self.claimed[request.match_info["work"]]
        found.seen.add(_credential(request))
        return found

    def _session(self, request: web.Request) -> AgentSession:
        found = self.claimed[f"work_{request.match_info['session']}"]
        found.seen.add(_credential(request))
        return found


def _item(session: AgentSession) -> dict[str, Any]:
    secret = base64.urlsafe_b64encode(json.dumps({"sessions_token": session.token}).encode()).decode().rstrip("=")
    return {
        "id": f"work_{session.session_id}",
        "type": "work",
        "environment_id": ENVIRONMENT,
        "created_at": NOW,
        "state": "queued",
        "metadata": {},
        "data": {"type": "session", "id": session.session_id},
        "secret": secret if session.token else None,
    }


def _event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def _credential(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ") or request.headers.get("X-Api-Key", "")


def _refused(message: str) -> web.Response:
    body = {"type": "error", "error": {"type": "authentication_error", "message": message}}
    return web.json_response(body, status=401)
