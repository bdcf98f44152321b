"""Own sandboxes: their records, leases, pools, ports and capacity."""

from __future__ import annotations

from sandmeshd.allocator.app import open_allocator
from sandmeshd.allocator.servicer import SandboxServicer
from sandmeshd.allocator.settings import AllocatorSettings

__all__ = ["AllocatorSettings", "SandboxServicer", "open_allocator"]
