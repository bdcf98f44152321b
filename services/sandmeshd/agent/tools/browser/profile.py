"""The browser's profile, out of a sandbox that ends and into the next one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.files.changes import make_directory
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.requests import Mkdir, Pack, Unpack
from sandmeshd.agent.files.service import FileService

PACK: Final = "browser.profile.pack"
UNPACK: Final = "browser.profile.unpack"
DIRECTORY: Final = ".cache/sandmesh-browser"
"""Below the home."""


def profile_services(home: str, most: int, settle: Callable[[], Awaitable[None]]) -> Mapping[str, Service]:
    """Return what serves the driver; `settle` closes the browser, so that its files are whole."""

    async def pack(_: Any, call: Call) -> Outcome:
        await settle()
        with Workspace(home) as root:
            make_directory(root, Mkdir(DIRECTORY))
            return await _run(root, most, Pack.tool, {"path": DIRECTORY, "any_modes": True}, call)

    async def unpack(_: Any, call: Call) -> Outcome:
        with Workspace(home) as root:
            return await _run(root, most, Unpack.tool, {"path": DIRECTORY}, call)

    return {PACK: Service(_nothing, pack), UNPACK: Service(_nothing, unpack)}


async def _run(root: Workspace, most: int, tool: str, arguments: Mapping[str, object], call: Call) -> Outcome:
    service = FileService(root, most).services()[tool]
    return await service.run(service.read(json.dumps(arguments).encode()), call)


def _nothing(_: bytes) -> None:
    """Read no arguments: there are none."""
