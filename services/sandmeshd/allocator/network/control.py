"""Grants of running sandboxes: read from their drivers, and changed there."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import RuntimeUnavailable, WrongState
from sandmeshd.allocator.network.changes import changed
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.records.spec import check_network, limited_to
from sandmeshd.allocator.records.template_limits import apply_template_limits
from sandmeshd.auth.principal import current_principal

_ATTEMPTS = 8


class NetworkControl:
    """Read and change what sandboxes may reach."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def read(self, record: RecordState) -> pb.GetNetworkResponse:
        """Return the grant in force and the traffic of a sandbox.

        Raises:
            RuntimeUnavailable: Its node does not answer.
        """
        query = driver_pb2.ChangeNetworkRequest(sandbox_id=record.sandbox_id)
        response = await self._node(record).client.change_network(query)
        return pb.GetNetworkResponse(grant=response.grant, hosts=response.hosts)

    async def change(self, record: RecordState, request: pb.ChangeNetworkRequest) -> pb.NetworkGrant:
        """Put the requested grant in force, made of the one that is.

        Raises:
            InvalidArgument: A host is not one, or the template does not allow it.
            CapabilityMissing: The sandbox has no way out, or its driver cannot enforce the grant.
            RuntimeUnavailable: Its node does not answer.
            WrongState: Others change it all the time.
        """
        node = self._node(record)
        current = (await self.read(record)).grant
        for _ in range(_ATTEMPTS):
            wanted = self._wanted(record, node, changed(current, request))
            change = driver_pb2.ChangeNetworkRequest(sandbox_id=record.sandbox_id, grant=wanted, replaces=current)
            current = (await node.client.change_network(change)).grant
            if current == wanted:
                return wanted
        raise WrongState(f"the network of {record.sandbox_id} is being changed by others: try again", {"state": "busy"})

    def _wanted(self, record: RecordState, node: Node, grant: pb.NetworkGrant) -> pb.NetworkGrant:
        check_network(grant, "grant.hosts")
        template = record.sandbox().spec.template
        spec = limited_to(current_principal(), pb.SandboxSpec(template=template, network=grant))
        apply_template_limits(spec, node.template(template))
        return spec.network

    def _node(self, record: RecordState) -> Node:
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        return node
