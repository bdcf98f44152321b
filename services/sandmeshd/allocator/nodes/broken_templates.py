"""Templates that could not be made ready: why, and when each is tried again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import ProtocolMismatch, SandmeshError, TemplateBuildFailed
from sandmeshd.allocator.nodes.node import Node

_LONGEST_PAUSE_SECONDS = 60.0
BROKEN = (TemplateBuildFailed, ProtocolMismatch)
"""The failures that are the template's own; any other, such as an engine that is away, is its node's."""


@dataclass(frozen=True)
class _Failure:
    """The last failure of one version of a template."""

    error: SandmeshError
    generation: str
    pause: float
    ends: float


class BrokenTemplates:
    """Remember failures per node and template, each for as long as that version is not prepared."""

    def __init__(self, first_pause: float) -> None:
        self._first_pause = first_pause
        self._failures: dict[tuple[str, str], _Failure] = {}

    def record(self, node: Node, template: str, error: SandmeshError) -> float:
        """Record a failure and return the seconds until the next attempt, twice as many after each."""
        before = self._of(node, template)
        pause = min(before.pause * 2, _LONGEST_PAUSE_SECONDS) if before else self._first_pause
        ends = time.monotonic() + pause
        self._failures[node.name, template] = _Failure(error, _generation(node, template), pause, ends)
        return pause

    def forget(self, node: Node, template: str) -> None:
        """Forget the failure of a template that was made ready, or is another now."""
        self._failures.pop((node.name, template), None)

    def refusal(self, node: Node, template: str) -> SandmeshError | None:
        """Return the error for creates of a template whose next attempt is due later; None if it may be tried now."""
        failure = self._of(node, template)
        if failure is None or failure.ends <= time.monotonic():
            return None
        return named(failure.error, template, failure.ends - time.monotonic())

    def troubles(self, node: Node) -> list[sandbox_pb2.Trouble]:
        """Return what is wrong with the templates of a node, for people."""
        found: list[sandbox_pb2.Trouble] = []
        for name, template in [key for key in self._failures if key[0] == node.name]:
            failure = self._of(node, template)
            if failure is None or is_prepared(node, template):
                continue
            fix = failure.error.facts.get("fix", "")
            reason = failure.error.message.removesuffix(fix).rstrip(":; ")
            detail = f"template {template} cannot be made ready, and its sandboxes are refused: {reason}"
            wait = max(0.0, failure.ends - time.monotonic())
            again = f"it is tried again in {wait:.0f} s, without a restart"
            trouble = sandbox_pb2.Trouble(part="template", node_id=node.node_id or name, detail=detail)
            trouble.fix = f"{fix}; {again}" if fix else again
            found.append(trouble)
        return found

    def _of(self, node: Node, template: str) -> _Failure | None:
        failure = self._failures.get((node.name, template))
        return failure if failure and failure.generation == _generation(node, template) else None


def named(error: SandmeshError, template: str, wait: float) -> SandmeshError:
    """Return an error that names the template, with the seconds after which a request may succeed."""
    message = f"template {template} cannot be made ready: {error.message}"
    return type(error)(message, {**error.facts, "template": template}, changed=error.changed, retry_after=wait)


def is_prepared(node: Node, template: str) -> bool:
    """Return whether a create of a template can start without waiting."""
    found = node.template(template)
    return found is not None and found.prepared


def _generation(node: Node, template: str) -> str:
    found = node.template(template)
    return found.generation if found else ""
