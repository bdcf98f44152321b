"""Settings of the gvisor driver."""

from __future__ import annotations

from typing import ClassVar

from sandmeshd.drivers.engine.runtimes import GVISOR, RuntimeProfile
from sandmeshd.drivers.engine.settings import DockerSettings


class GvisorSettings(DockerSettings):
    """Settings of the gvisor driver: those of the Docker engine that it runs on."""

    profile: ClassVar[RuntimeProfile] = GVISOR
    """What is the driver's own."""
