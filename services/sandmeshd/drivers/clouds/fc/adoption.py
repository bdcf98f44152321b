"""Finds the sandboxes that earlier drivers left: the vendor lists the sessions, and each agent has its record."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.addresses import websocket_endpoint
from sandmeshd.agentlink.connection import read_record
from sandmeshd.drivers.clouds.fc.functions import Functions
from sandmeshd.drivers.clouds.fc.instances import began
from sandmeshd.drivers.clouds.fc.names import AFFINITY, sandbox_id_of
from sandmeshd.drivers.clouds.fc.refusals import Refusal
from sandmeshd.drivers.clouds.fc.service import FunctionCompute
from sandmeshd.drivers.clouds.fc.sessions import Session, Sessions
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.node.records import Record

PAUSE_SECONDS = 0.5
UNKNOWN = "its start was left unfinished, its agent does not answer, or the mesh's secret is another one"

log = structlog.get_logger()


class Adoption:
    """Reads what is left of a mesh's sandboxes."""

    def __init__(self, mesh_id: str, service: FunctionCompute, keys: MeshKeys, patience: float) -> None:
        self._mesh_id = mesh_id
        self._service = service
        self._keys = keys
        self._patience = patience

    async def fill(self, functions: Functions, sessions: Sessions) -> None:
        """Add the sessions of all functions of the mesh, and remove functions of older generations without any.

        Raises:
            SandmeshError: The vendor does not answer, or refuses.
        """
        for name in await functions.names():
            try:
                url = await functions.existing_url(name)
            except Refusal:
                url = ""
            listed = await self._service.list_sessions(name)
            for found in await asyncio.gather(*(self._read(name, url, one) for one in listed)):
                await self._add(found, sessions)
            await functions.remove_unused(name)

    async def _read(self, function: str, url: str, listed: dict[str, Any]) -> Session:
        session_id = str(listed["sessionId"])
        sandbox = pb.RuntimeSandbox(sandbox_id=sandbox_id_of(session_id), mesh_id=self._mesh_id)
        session = Session(function, session_id, Record(sandbox, 0), began(listed))
        if listed.get("sessionStatus") == "Expired":
            session.end("Function Compute ended its session while no driver was there")
            return session
        record = await self._record(url, session_id) if url else None
        if record is None:
            session.end(UNKNOWN)
        else:
            session.record = record
        return session

    async def _record(self, url: str, session_id: str) -> Record | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        endpoint = websocket_endpoint(url, AFFINITY, session_id)
        token, owner = self._keys.agent_token(session_id), sandbox_id_of(session_id)
        sandbox = pb.RuntimeSandbox(sandbox_id=owner, endpoint=endpoint, agent_token=token)
        while True:
            try:
                return self._keys.unseal(await read_record(sandbox), session_id)
            except SandmeshError as error:
                if loop.time() >= end:
                    log.warning("a sandbox cannot be adopted", sandbox_id=owner, reason=error.message)
                    return None
                await asyncio.sleep(PAUSE_SECONDS)

    async def _add(self, session: Session, sessions: Sessions) -> None:
        former = sessions.get(session.sandbox.sandbox_id)
        unwanted = session if not session.sandbox.sandbox_id else None
        if former is not None and unwanted is None:
            unwanted = former if former.has_ended else session
        if unwanted is not session:
            sessions.add(session)
        if unwanted is not None:
            # Of an interrupted create: nobody knows of it, and it is billed.
            await self._service.delete_session(unwanted.function, unwanted.session_id)
