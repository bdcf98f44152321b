"""The part of a driver that is about grants, where nothing around it serves egress."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing


class FixedGrants:
    """A driver whose grants stay as they were made; the egress guard around it changes them."""

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Refuse to change a grant.

        Raises:
            CapabilityMissing: Always.
        """
        message = f"the grant of {request.sandbox_id} is fixed: its driver has no egress guard"
        raise CapabilityMissing(message, {"needs": "network"})
