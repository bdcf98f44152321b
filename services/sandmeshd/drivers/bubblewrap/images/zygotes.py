"""The zygotes of sandboxes whose root is an image: one serves all images and templates with one Python environment."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from sandmeshd.drivers.bubblewrap.arguments import Mounts
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import agent_binds
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.launcher import closed_on_error, control_sockets
from sandmeshd.drivers.bubblewrap.starts.exec_start import launch
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, ZygoteKey
from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME
from sandmeshd.drivers.node.images.environment import ImageEnvironments
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.portable_python.contents import PORTABLE

VARIABLES: Final = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "HOME": HOME}
"""What its interpreters start with; each sandbox has its image's and its own."""


def key_of(mounts: Mounts, owner: str) -> ZygoteKey:
    """Return the key of the zygote of such sandboxes of an owner."""
    shared = replace(mounts, home_files=(), system=(), data=(), scratch=())
    return ZygoteKey.of(shared, VARIABLES, owner)


class ImageLauncher:
    """Starts them for one driver: see `ZygoteLauncher`."""

    def __init__(
        self,
        settings: BubblewrapSettings,
        agent_filter: bytes,
        ranges: IdRanges,
        environments: ImageEnvironments,
    ) -> None:
        self._settings = settings
        self._filter = agent_filter
        self._ranges = ranges
        self._environments = environments

    async def start(self, mounts: Mounts, key: ZygoteKey, output: int) -> RunningZygote:
        """Start a zygote: see `ZygoteLauncher`."""
        binds = [*await self._environments.binds(mounts.environment), *agent_binds(mounts)]
        shown = [(source, target) for source, target, _ in binds]
        zygote = self._launch(mounts.agent, shown, output)
        async with closed_on_error(zygote, self._settings.start_timeout):
            await zygote.configure(self._config(shown, key), output)
        return zygote

    def _launch(self, agent: Path, shown: list[tuple[str, str]], output: int) -> RunningZygote:
        with ExitStack() as stack:
            ours, theirs = control_sockets(stack)
            with theirs:
                start = {
                    "maps": self._ranges.all_maps(),
                    "is_root": os.geteuid() == 0,
                    "binds": shown,
                    "control": theirs.fileno(),
                    "python": f"{PORTABLE}/bin/python{VERSION}",
                    "agent": AGENT,
                }
                command = [sys.executable, "-I", "-S", str(agent), "--image-zygote", json.dumps(start)]
                zygote = RunningZygote(ours, launch(command, output, (theirs.fileno(),)))
            stack.pop_all()
        return zygote

    def _config(self, shown: list[tuple[str, str]], key: ZygoteKey) -> dict[str, object]:
        user = self._ranges.user
        seccomp = b64encode(self._filter).decode()
        image = {"binds": shown, "home": HOME, "user": [user, user], "filter": seccomp}
        return {"image": image, "python": f"{ENVIRONMENT}/bin/python", "environment": dict(key.variables)}
