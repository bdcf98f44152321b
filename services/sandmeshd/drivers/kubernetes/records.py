"""The records of sandboxes: a Secret each, with what configures its agent. The driver keeps nothing on a disk.

Who claimed a sandbox from a pool its agent knows first: until the Secret says so too, a driver that starts asks there.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InternalError, InvalidArgument, SandmeshError
from sandmeshd.drivers.kubernetes.cluster.requests import CONFLICT, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.kinds import ResourceKind
from sandmeshd.drivers.kubernetes.names import metadata, object_name, sandbox_id_of, selector
from sandmeshd.drivers.node.records import SpecRecord

RECORD = "record"
NONCE_BYTES = 12
LARGEST = (1 << 20) - (1 << 14)
"""The bytes of a Secret, less what the rest of it takes."""

WRITE_SECONDS, LONGEST_PAUSE, CLOSE_SECONDS = 0.1, 10.0, 2.0
"""After a claim its first call comes, which need not wait for the Secret; how long a driver waits that ends."""

log = structlog.get_logger()


class Seal:
    """Seals who has a sandbox, for its agent to keep, with a key that only the sandbox's Secret has."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)

    @classmethod
    def new(cls) -> Seal:
        """Return one with a new key."""
        return cls(AESGCM.generate_key(256))

    @classmethod
    def parse(cls, text: str) -> Seal:
        """Return the one that was written as a text.

        Raises:
            ValueError: It was not.
        """
        return cls(b64decode(text, validate=True))

    def text(self) -> str:
        """Return it as a text, only for the Secret."""
        return b64encode(self._key).decode()

    def close(self, data: bytes) -> bytes:
        """Return what is sealed as the agent keeps it, which can neither read nor make it."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, None)

    def open(self, sealed: bytes) -> bytes:
        """Return what was sealed here, nothing if it was not."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            return b""


class PodRecords:
    """The records of one mesh, as this driver read and wrote them: no other writes them meanwhile."""

    def __init__(self, cluster: Cluster, mesh_id: str, owner: ResourceKind) -> None:
        self._owner = owner
        self._cluster = cluster
        self._mesh_id = mesh_id
        self._records: dict[str, SpecRecord] = {}
        self._seals: dict[str, Seal] = {}
        self._late: dict[str, asyncio.Task[None]] = {}

    def find(self, sandbox_id: str) -> SpecRecord | None:
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
                self._take(sandbox_id, secret)

    def _take(self, sandbox_id: str, secret: Mapping[str, Any]) -> None:
        data = _data(secret)
        self._records[sandbox_id] = _parsed(data) or _unreadable(sandbox_id, self._mesh_id)
        seal = _seal(data)
        if seal is not None:
            self._seals[sandbox_id] = seal

    async def create(self, record: SpecRecord, files: Mapping[str, bytes]) -> bool:
        """Write the record and the agent's files of a new sandbox; return False if there is one, which is read then.

        Raises:
            InvalidArgument: They are larger than a Secret may be.
            InternalError: The Secret's name is taken by something else.
        """
        sandbox, seal = record.sandbox, Seal.new()
        line = _line(record, seal)
        if sum(map(len, files.values())) + len(line) > LARGEST:
            message = "the environment variables are larger than what a Secret holds, 1 MiB with all the rest"
            raise InvalidArgument(message, {"field": "spec.environment"})
        data = {name: b64encode(value).decode() for name, value in files.items()} | {RECORD: line}
        described = metadata(self._mesh_id, sandbox.sandbox_id, sandbox.spec.template)
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": described, "type": "Opaque", "data": data}
        try:
            await self._cluster.create(self._cluster.path("secrets"), body)
        except ApiRefusal as refusal:
            if refusal.status != CONFLICT:
                raise
            await self._reload(sandbox.sandbox_id)
            return False
        self._records[sandbox.sandbox_id], self._seals[sandbox.sandbox_id] = record, seal
        return True

    async def _reload(self, sandbox_id: str) -> None:
        name = object_name(self._mesh_id, sandbox_id)
        secret = await self._cluster.find(self._cluster.path("secrets", name))
        owner = sandbox_id_of(secret)
        if secret is not None and owner != sandbox_id:
            raise InternalError(f"the name {name} of {sandbox_id} is that of {owner or 'something else'}")
        if secret is not None:
            self._take(sandbox_id, secret)

    async def write(self, record: SpecRecord, owner: str = "") -> None:
        """Replace a record; with `owner`, its pod's or claim's uid, the Secret goes with that."""
        late = self._late.get(record.sandbox.sandbox_id)
        if late is None:
            await self._patch(record, owner)
        self._records[record.sandbox.sandbox_id] = record
        if late is not None:
            # It writes this one too, and last.
            await asyncio.shield(late)

    async def _patch(self, record: SpecRecord, owner: str = "") -> None:
        name = object_name(self._mesh_id, record.sandbox.sandbox_id)
        body: dict[str, Any] = {"data": {RECORD: _line(record, self._seals.get(record.sandbox.sandbox_id))}}
        if owner:
            # Where owner references are enforced, one that blocks its owner's deletion takes another right.
            kind = {"apiVersion": self._owner.version, "kind": self._owner.kind}
            body["metadata"] = {"ownerReferences": [{**kind, "name": name, "uid": owner, "blockOwnerDeletion": False}]}
        await self._cluster.patch(self._cluster.path("secrets", name), body)

    def seal(self, record: SpecRecord) -> bytes:
        """Return a record for the sandbox's agent to keep, nothing where its Secret has no key for that."""
        seal = self._seals.get(record.sandbox.sandbox_id)
        return seal.close(_encoded(record)) if seal else b""

    def recall(self, sandbox_id: str, sealed: bytes) -> None:
        """Adopt the record that a sandbox's agent kept, where it is newer than that of its Secret."""
        seal, known = self._seals.get(sandbox_id), self._records.get(sandbox_id)
        record = _parsed(seal.open(sealed)) if seal else None
        if record is not None and known is not None and record.fencing_token > known.fencing_token:
            log.info("a sandbox was claimed before its Secret said so", sandbox_id=sandbox_id)
            self.write_late(record)

    def write_late(self, record: SpecRecord) -> None:
        """Adopt a record that the agent keeps, and write it to the Secret shortly, or once the API server answers."""
        sandbox_id = record.sandbox.sandbox_id
        self._records[sandbox_id] = record
        if sandbox_id not in self._late:
            task = self._late[sandbox_id] = asyncio.create_task(self._write_until_done(sandbox_id))
            task.add_done_callback(partial(self._end_late, sandbox_id))

    def _end_late(self, sandbox_id: str, task: asyncio.Task[None]) -> None:
        if self._late.get(sandbox_id) is task:
            del self._late[sandbox_id]

    async def _write_until_done(self, sandbox_id: str) -> None:
        pause, written = WRITE_SECONDS, None
        while written is not self._records.get(sandbox_id):
            await asyncio.sleep(pause)
            record = self._records.get(sandbox_id)
            if record is None:
                return
            try:
                await self._patch(record)
                written = record
            except ApiRefusal:
                # It was deleted.
                return
            except SandmeshError as error:
                pause = min(pause * 2, LONGEST_PAUSE)
                log.warning("who has a sandbox is not in its Secret yet", sandbox_id=sandbox_id, error=error.message)

    async def close(self) -> None:
        """Wait a moment for what is not written yet: agents have it."""
        late = list(self._late.values())
        if late:
            _, pending = await asyncio.wait(late, timeout=CLOSE_SECONDS)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def remove(self, sandbox_id: str) -> None:
        """Remove a record, if it is there."""
        late = self._late.pop(sandbox_id, None)
        if late is not None:
            late.cancel()
        await self._cluster.delete(self._cluster.path("secrets", object_name(self._mesh_id, sandbox_id)))
        self._records.pop(sandbox_id, None)
        self._seals.pop(sandbox_id, None)


def _values(record: SpecRecord) -> dict[str, object]:
    sandbox = b64encode(record.sandbox.SerializeToString()).decode()
    return {"sandbox": sandbox, "fencing_token": record.fencing_token}


def _encoded(record: SpecRecord) -> bytes:
    return json.dumps(_values(record)).encode()


def _line(record: SpecRecord, seal: Seal | None) -> str:
    key = {"seal": seal.text()} if seal else {}
    return b64encode(json.dumps(_values(record) | key).encode()).decode()


def _data(secret: Mapping[str, Any]) -> bytes:
    try:
        return b64decode(secret["data"][RECORD])
    except (ValueError, KeyError, TypeError):
        return b""


def _seal(data: bytes) -> Seal | None:
    try:
        return Seal.parse(json.loads(data)["seal"])
    except (ValueError, KeyError, TypeError):
        return None


def _parsed(data: bytes) -> SpecRecord | None:
    try:
        values = json.loads(data)
        return SpecRecord(pb.RuntimeSandbox.FromString(b64decode(values["sandbox"])), int(values["fencing_token"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, DecodeError):
        return None


def _unreadable(sandbox_id: str, mesh_id: str) -> SpecRecord:
    detail = "its record cannot be read"
    state = pb.RUNTIME_STATE_ENDED
    return SpecRecord(pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=mesh_id, state=state, end_detail=detail), 0)
