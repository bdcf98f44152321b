"""The records of sandboxes: a Secret each, with what configures its agent. The driver keeps nothing on a disk."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InternalError, InvalidArgument
from sandmeshd.drivers.kubernetes.cluster.requests import CONFLICT, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.kinds import Kind
from sandmeshd.drivers.kubernetes.names import metadata, object_name, sandbox_id_of, selector
from sandmeshd.drivers.node.records import Record

RECORD = "record"
LARGEST = (1 << 20) - (1 << 14)
"""The bytes of a Secret, less what the rest of it takes."""


class Records:
    """The records of one mesh, as this driver read and wrote them: no other writes them meanwhile."""

    def __init__(self, cluster: Cluster, mesh_id: str, owner: Kind) -> None:
        self._owner = owner
        self._cluster = cluster
        self._mesh_id = mesh_id
        self._records: dict[str, Record] = {}

    def find(self, sandbox_id: str) -> Record | None:
        """Return the record of a sandbox, None if it has none."""
        return self._records.get(sandbox_id)

    def sandbox_ids(self) -> set[str]:
        """Return the sandboxes that have a record."""
        return set(self._records)

    async def load(self) -> None:
        """Read the records that earlier drivers of the mesh wrote."""
        found, _ = await self._cluster.list(self._cluster.path("secrets"), selector(self._mesh_id))
        for secret in found:
            sandbox_id = sandbox_id_of(secret)
            if sandbox_id:
                record = _parsed(secret) or _unreadable(sandbox_id, self._mesh_id)
                self._records[sandbox_id] = record

    async def create(self, record: Record, files: Mapping[str, bytes]) -> bool:
        """Write the record and the agent's files of a new sandbox; return False if there is one, which is read then.

        Raises:
            InvalidArgument: They are larger than a Secret may be.
            InternalError: The Secret's name is taken by something else.
        """
        sandbox = record.sandbox
        if sum(map(len, files.values())) + len(_line(record)) > LARGEST:
            message = "the environment variables are larger than what a Secret holds, 1 MiB with all the rest"
            raise InvalidArgument(message, {"field": "spec.environment"})
        data = {name: b64encode(value).decode() for name, value in files.items()} | {RECORD: _line(record)}
        described = metadata(self._mesh_id, sandbox.sandbox_id, sandbox.spec.template)
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": described, "type": "Opaque", "data": data}
        try:
            await self._cluster.create(self._cluster.path("secrets"), body)
        except ApiRefusal as refusal:
            if refusal.status != CONFLICT:
                raise
            await self._reload(sandbox.sandbox_id)
            return False
        self._records[sandbox.sandbox_id] = record
        return True

    async def _reload(self, sandbox_id: str) -> None:
        name = object_name(self._mesh_id, sandbox_id)
        secret = await self._cluster.find(self._cluster.path("secrets", name))
        owner = sandbox_id_of(secret)
        if secret is not None and owner != sandbox_id:
            raise InternalError(f"the name {name} of {sandbox_id} is that of {owner or 'something else'}")
        if secret is not None:
            self._records[sandbox_id] = _parsed(secret) or _unreadable(sandbox_id, self._mesh_id)

    async def write(self, record: Record, owner: str = "") -> None:
        """Replace a record; with `owner`, its pod's or claim's uid, the Secret goes with that."""
        name = object_name(self._mesh_id, record.sandbox.sandbox_id)
        body: dict[str, Any] = {"data": {RECORD: _line(record)}}
        if owner:
            # Where owner references are enforced, one that blocks its owner's deletion takes another right.
            kind = {"apiVersion": self._owner.version, "kind": self._owner.kind}
            body["metadata"] = {"ownerReferences": [{**kind, "name": name, "uid": owner, "blockOwnerDeletion": False}]}
        await self._cluster.patch(self._cluster.path("secrets", name), body)
        self._records[record.sandbox.sandbox_id] = record

    async def remove(self, sandbox_id: str) -> None:
        """Remove a record, if it is there."""
        await self._cluster.delete(self._cluster.path("secrets", object_name(self._mesh_id, sandbox_id)))
        self._records.pop(sandbox_id, None)


def _line(record: Record) -> str:
    sandbox = b64encode(record.sandbox.SerializeToString()).decode()
    values = {"sandbox": sandbox, "fencing_token": record.fencing_token}
    return b64encode(json.dumps(values).encode()).decode()


def _parsed(secret: Mapping[str, Any]) -> Record | None:
    try:
        values = json.loads(b64decode(secret["data"][RECORD]))
        return Record(pb.RuntimeSandbox.FromString(b64decode(values["sandbox"])), int(values["fencing_token"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, DecodeError):
        return None


def _unreadable(sandbox_id: str, mesh_id: str) -> Record:
    detail = "its record cannot be read"
    state = pb.RUNTIME_STATE_ENDED
    return Record(pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=mesh_id, state=state, end_detail=detail), 0)
