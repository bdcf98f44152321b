"""New values of secrets, put in force in running sandboxes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, RuntimeUnavailable, SandmeshError
from sandmesh.shared.hosts import read_host
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.secrets.specs import check_hosts_within
from sandmeshd.auth.sealer import Sealer

_PAGE = 100
_LIVING = frozenset({"STARTING", "READY", "PAUSED"})


@dataclass
class Rotated:
    """Which running sandboxes use a secret, and what became of their values."""

    changed: list[str] = field(default_factory=list[str])
    outdated: list[str] = field(default_factory=list[str])
    withdrawn: list[str] = field(default_factory=list[str])


class Rotation:
    """Changes the values that sandboxes' requests get."""

    def __init__(self, records: RecordStore, nodes: Nodes, sealer: Sealer) -> None:
        self._records = records
        self._nodes = nodes
        self._sealer = sealer

    async def everywhere(self, user_id: str, name: str, hosts: list[str], value: str) -> Rotated:
        """Send a stored secret's new value to all sandboxes that use it; an empty one withdraws it."""
        rotated, after = Rotated(), ""
        while True:
            page = await self._records.page("", {}, after, _PAGE)
            for record in page:
                if record.state in _LIVING:
                    await self._rotate(record, user_id, name, hosts, value, rotated)
            if len(page) < _PAGE:
                return rotated
            after = page[-1].sandbox_id

    async def _rotate(
        self, record: RecordState, user_id: str, name: str, hosts: list[str], value: str, rotated: Rotated
    ) -> None:
        used = {v: s for v, s in record.spec.secrets.items() if (s.name, s.user_id) == (name, user_id)}
        if not used:
            return
        fitting = {variable: bool(value) and _fits(secret, hosts) for variable, secret in used.items()}
        try:
            for variable, secret in used.items():
                await self.change(record, variable, secret, value if fitting[variable] else "")
        except SandmeshError:
            rotated.outdated.append(record.sandbox_id)
        else:
            (rotated.changed if all(fitting.values()) else rotated.withdrawn).append(record.sandbox_id)

    async def change(self, record: RecordState, variable: str, secret: pb.SandboxSecret, value: str) -> None:
        """Change the value of one secret of one sandbox; an empty one takes it away.

        Raises:
            RuntimeUnavailable: Its node does not answer.
            SandboxNotFound: It is not there any more, or not yet.
        """
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        changed = pb.SandboxSecret()
        changed.CopyFrom(secret)
        changed.sealed = self._sealer.seal(value, secret.user_id, secret.hosts) if value else b""
        request = driver_pb2.ChangeNetworkRequest(sandbox_id=record.sandbox_id, secrets={variable: changed})
        await node.client.change_network(request)


def _fits(secret: pb.SandboxSecret, hosts: list[str]) -> bool:
    try:
        check_hosts_within([read_host(host) for host in secret.hosts], hosts, "it")
    except InvalidArgument:
        return False
    return True
