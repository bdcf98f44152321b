"""What a sandbox whose image has no agent is shown: the agent with a Python that needs nothing of the image."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import AGENT, MCP, USER_ID
from sandmeshd.drivers.node.builds import is_complete
from sandmeshd.drivers.node.environments import PythonEnvironments
from sandmeshd.drivers.node.images.environment import ImageEnvironments
from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.portable_python.bundle import PortablePython
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.templates import PythonEnvironment

Binds = list[tuple[str, str, bool]]
"""Directories of the host: source, place inside, and whether it can be written."""


class AgentPrograms:
    """The programs of one driver's sandboxes; they are built for the first that needs them."""

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings
        self._builds: dict[str, asyncio.Task[Binds]] = {}

    async def binds(self, python: PythonEnvironment) -> Binds:
        """Return what shows agent, Python and a template's packages, which are built unless they are there.

        Raises:
            RuntimeUnavailable: This machine has no interpreter for it, or its disk is full.
            TemplateBuildFailed: A package could not be installed.
        """
        key = python.model_dump_json()
        task = self._builds.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._builds[key] = asyncio.create_task(self._build(python))
        # Who gives up leaves the build to the others, and to a later request.
        return await asyncio.shield(task)

    async def _build(self, python: PythonEnvironment) -> Binds:
        cache = self._settings.paths.cache
        interpreter = await asyncio.to_thread(choose_interpreter, USER_ID, None)
        agent = await asyncio.to_thread(AgentTree, cache)
        environments = PythonEnvironments(cache, interpreter)
        with full_disk_explained(cache):
            await agent.build()
            path = environments.path(python)
            if not is_complete(path):
                async with aclosing(environments.build(python)) as steps:
                    async for _ in steps:
                        pass
            shown = await ImageEnvironments(cache, PortablePython(cache, interpreter)).binds(path)
        return [*shown, (str(agent.site), AGENT, False), (str(agent.mcp), MCP, False)]

    async def close(self) -> None:
        """End the builds that run."""
        tasks = list(self._builds.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
