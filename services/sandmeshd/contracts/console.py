"""What the console and the gateway agree on."""

from __future__ import annotations

from typing import Final

COOKIE: Final = "sandmesh-console"
"""The cookie of a session: browsers send it to every port of its host, and no sandbox may see it."""
