"""The desktop of a FilesystemSandbox: there its image has one, which starts when it is first asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import sandmesh
from sandmesh._client.connection import Connection, acquire, release
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.sandbox.handle import Attachment

PLAIN: Final = "filesystem"
WITH_DESKTOP: Final = "gui"
"""The template that has what `filesystem` has and a desktop; an unused desktop costs nothing."""


class FilesystemSandboxAsync(sandmesh.FilesystemSandboxAsync):
    """A sandbox with tools for files; a new one is of the template `gui` where the mesh has that ready."""

    async def _attach(self) -> Attachment:
        config, spec = self._config, self._config.spec
        if config.sandbox_id is not None or spec.template != PLAIN or spec.snapshot_id:
            return await super()._attach()
        # It is held until the box is open: a private mesh ends with its last connection.
        connection = await acquire(config.base_url, config.bearer_token, config.timeout, config.ca_cert)
        try:
            if await _has_desktop(connection, config.timeout):
                chosen = sandbox_pb2.SandboxSpec()
                chosen.CopyFrom(spec)
                chosen.template = WITH_DESKTOP
                self._config = replace(config, spec=chosen)
            return await super()._attach()
        finally:
            await release(connection)


async def _has_desktop(connection: Connection, timeout: float) -> bool:
    request = sandbox_pb2.ListTemplatesRequest()
    response = await connection.ask(lambda stubs: stubs.sandboxes.ListTemplates, request, timeout)
    found = [template for template in response.templates if template.name == WITH_DESKTOP]
    return any(node.prepared for one in found for node in one.nodes)
