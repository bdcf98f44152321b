"""Logs of a sandbox's agent and runtime, read from its driver."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.records import RecordState

_LARGEST_TAIL = 1 << 20


class SandboxLogs:
    """Read the logs of sandboxes from their nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def read(self, record: RecordState, request: pb.GetSandboxLogsRequest) -> pb.GetSandboxLogsResponse:
        """Return the end of a sandbox's log.

        Raises:
            InvalidArgument: More was requested than one response holds.
            RuntimeUnavailable: Its node does not answer.
            SandboxNotFound: Nothing of it is left.
        """
        if request.tail_bytes > _LARGEST_TAIL:
            raise InvalidArgument(f"tail_bytes must be at most {_LARGEST_TAIL}", {"field": "tail_bytes"})
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        driver_request = driver_pb2.GetLogsRequest(
            sandbox_id=record.sandbox_id, tail_bytes=request.tail_bytes, after_offset=request.after_offset
        )
        response = await node.client.get_logs(driver_request)
        return pb.GetSandboxLogsResponse(data=response.data, end_offset=response.end_offset)
