"""Reads what a sandbox's agent and runtime wrote, from the driver that has it."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.records import Record

_LARGEST_TAIL = 1 << 20


class Logs:
    """Asks the nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def read(self, record: Record, request: pb.GetSandboxLogsRequest) -> pb.GetSandboxLogsResponse:
        """Give the end of a sandbox's log.

        Raises:
            InvalidArgument: More was asked for than one answer holds.
            RuntimeUnavailable: Its node does not answer.
            SandboxNotFound: Nothing of it is left.
        """
        if request.tail_bytes > _LARGEST_TAIL:
            raise InvalidArgument(f"tail_bytes is at most {_LARGEST_TAIL}", {"field": "tail_bytes"})
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        wanted = driver_pb2.GetLogsRequest(
            sandbox_id=record.sandbox_id, tail_bytes=request.tail_bytes, after_offset=request.after_offset
        )
        found = await node.client.get_logs(wanted)
        return pb.GetSandboxLogsResponse(data=found.data, end_offset=found.end_offset)
