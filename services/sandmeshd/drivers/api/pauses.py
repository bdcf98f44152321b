"""What a pause keeps, as requests name it."""

from __future__ import annotations

from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing

_NEEDS: Final = {
    sandbox_pb2.PAUSE_MODE_UNSPECIFIED: "pause",
    sandbox_pb2.PAUSE_MODE_MEMORY: "pause",
    sandbox_pb2.PAUSE_MODE_FILES: "pause_files",
    sandbox_pb2.PAUSE_MODE_CHECKPOINT: "pause_checkpoint",
}


def check_mode(mode: sandbox_pb2.PauseMode.ValueType, able: pb.Capabilities) -> None:
    """Check that a driver can pause in a mode.

    Raises:
        CapabilityMissing: It cannot.
    """
    needs = _NEEDS.get(mode, "")
    if not needs or not getattr(able, needs):
        name = needs or f"pause mode {mode}"
        raise CapabilityMissing(f"this driver lacks {name}: choose another mode, or another driver", {"needs": name})
