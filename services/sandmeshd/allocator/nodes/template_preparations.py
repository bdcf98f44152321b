"""Preparation of templates on nodes, shared by all who wait for the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.nodes.broken_templates import BROKEN, BrokenTemplates, is_prepared, named
from sandmeshd.allocator.nodes.node import Node

log = structlog.get_logger()


class TemplatePreparations:
    """Prepare each template once at a time on each node."""

    def __init__(self, tasks: BackgroundTasks, retry_seconds: float) -> None:
        self._tasks = tasks
        self.broken = BrokenTemplates(retry_seconds)
        """Templates that could not be made ready."""
        self._running: dict[tuple[str, str], asyncio.Task[SandmeshError | None]] = {}
        self._steps: dict[tuple[str, str], str] = {}

    async def prepared(self, nodes: Sequence[Node], template: str) -> list[Node]:
        """Return the nodes where a template is prepared; where none is yet, wait for the first.

        Where it is known to be broken, it is refused immediately until it is tried again.

        Raises:
            TemplateBuildFailed, ProtocolMismatch, RuntimeUnavailable: As the driver says.
        """
        missing = [node for node in nodes if not is_prepared(node, template)]
        refusals = [self.broken.refusal(node, template) for node in missing]
        running = [self._start(node, template) for node, no in zip(missing, refusals, strict=True) if no is None]
        if len(missing) == len(nodes):
            if not running and refusals[0] is not None:
                raise refusals[0]
            await _result(running[0])
        return [node for node in nodes if is_prepared(node, template)] or [nodes[0]]

    async def prepare(self, node: Node, template: str) -> None:
        """Prepare a template on a node; concurrent callers share one run.

        Raises:
            TemplateNotFound, TemplateBuildFailed, RuntimeUnavailable: As the driver says.
        """
        await _result(self._start(node, template))

    def _start(self, node: Node, template: str) -> asyncio.Task[SandmeshError | None]:
        key = (node.name, template)
        task = self._running.get(key)
        if task is None:
            task = self._tasks.attempt(self._prepare(node, template))
            self._running[key], self._steps[key] = task, "begun"
            task.add_done_callback(lambda _: self._finish(key))
        return task

    def _finish(self, key: tuple[str, str]) -> None:
        self._running.pop(key, None)
        self._steps.pop(key, None)

    async def _prepare(self, node: Node, template: str) -> SandmeshError | None:
        try:
            async for step in node.client.prepare_template(pb.PrepareTemplateRequest(template=template)):
                self._steps[node.name, template] = step.message
                log.info("preparing a template", node=node.name, template=template, step=step.message, done=step.done)
            await node.refresh()
        except BROKEN as error:
            return named(error, template, self.note(node, template, error))
        except SandmeshError as error:
            return error
        self.broken.forget(node, template)
        return None

    def note(self, node: Node, template: str, error: SandmeshError) -> float:
        """Record that a template could not be made ready; return the seconds until it is tried again."""
        pause = self.broken.record(node, template, error)
        why, wait = error.message, round(pause, 1)
        log.warning("a template cannot be made ready", node=node.name, template=template, why=why, retry_in=wait)
        self._tasks.attempt(self._retry(node, template, pause))
        return pause

    async def _retry(self, node: Node, template: str, pause: float) -> None:
        await asyncio.sleep(pause)
        if is_prepared(node, template) or node.template(template) is None:
            self.broken.forget(node, template)
        else:
            self._start(node, template)

    def progress(self, nodes: Sequence[Node]) -> list[sandbox_pb2.Preparation]:
        """Return what is being prepared, and the step that each has reached."""
        ids = {node.name: node.node_id or node.name for node in nodes}
        return [
            sandbox_pb2.Preparation(template=template, node_id=ids.get(name, name), step=step)
            for (name, template), step in self._steps.items()
        ]

    def deadline_exceeded(self, template: str) -> DeadlineExceeded:
        """Return the error of a request whose deadline passed before its template was prepared."""
        steps = [step for (_, name), step in self._steps.items() if name == template]
        if not steps:
            return DeadlineExceeded("no node answered in time", changed=False)
        message = (
            f"the template {template} is being made ready ({steps[0]}), which goes on: try again, or allow more time"
        )
        return DeadlineExceeded(message, {"template": template, "step": steps[0]}, changed=False)


async def _result(task: asyncio.Task[SandmeshError | None]) -> None:
    # A client that disconnects does not end the build: others wait for it, and the next one would need it.
    error = await asyncio.shield(task)
    if error is not None:
        raise error
