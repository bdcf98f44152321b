"""The training tools as methods that return what the environment returned, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from sandmesh._tools import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step, Tool, build
from sandmesh.errors import AlreadyExists, Fault, InvalidArgument, NotFound, SandmeshError, WrongState
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync


class InstanceNotFound(NotFound):
    """The sandbox has no such instance of a training environment."""

    blames = "task"


class EpisodeRefused(WrongState):
    """The episode is over, another call of its instance is under way, or the sandbox has too many instances."""

    blames = "task"


class InstanceFailed(WrongState):
    """An instance of a training environment has ended by a failure; others go on.

    `fault` says whose: "task" for an environment that raised or exited, "limit" for one that took too long or too much,
    "infra" for the mesh. `last_words` has the last lines that it printed.
    """

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        return cast("Fault", self.facts.get("fault", "task"))

    @property
    def last_words(self) -> Sequence[str]:
        """The last lines that the environment printed."""
        return self.facts.get("last_words", "").splitlines()


_CLASSES: Final[Mapping[str, type[SandmeshError]]] = {
    "NOT_FOUND": InstanceNotFound,
    "INVALID_ARGUMENT": InvalidArgument,
    "WRONG_STATE": EpisodeRefused,
    "ALREADY_EXISTS": AlreadyExists,
    "INSTANCE_FAILED": InstanceFailed,
}


class TrainingMethodsAsync(SandboxAsync):
    """The methods of an async box with training environments."""

    async def get_task_ids(
        self,
        env_type: str,
        split: str = "train",
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Return the ids of an environment's tasks.

        Raises:
            InvalidArgument: The sandbox has no such environment, or the environment no such split.
        """
        ids: list[str] = await self._run(build(GetTaskIds, env_type, split, params, timeout))
        return ids

    async def get_env_profile(
        self,
        env_type: str,
        split: str = "train",
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Return the ids of an environment's tasks, as `get_task_ids` does."""
        ids: list[str] = await self._run(build(GetEnvProfile, env_type, split, params, timeout))
        return ids

    async def create_instance(
        self,
        env_type: str,
        task_id: str | int,
        instance_id: str | None = None,
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Begin an episode: {"state": [...], "info": {"instance_id", "task_id", ...}}.

        Raises:
            InvalidArgument: The sandbox has no such environment, or the environment no such task.
            AlreadyExists: There is an instance of that id.
            InstanceFailed: The environment failed; nothing is left of the instance.
        """
        first: dict[str, Any] = await self._run(build(CreateInstance, env_type, task_id, instance_id, params, timeout))
        return first

    async def step(
        self,
        instance_id: str,
        action: Any = None,
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Take an action: {"state": [...], "reward": 0.0, "is_terminated": False, "info": {}}.

        Raises:
            InstanceNotFound: There is no such instance.
            InvalidArgument: The environment does not take the action; the episode is as it was.
            EpisodeRefused: The episode is over, or another call of the instance is under way.
            InstanceFailed: The environment failed, and the instance has ended.
        """
        stepped: dict[str, Any] = await self._run(build(Step, instance_id, action, params, timeout))
        return stepped

    async def evaluate(
        self,
        instance_id: str,
        messages: Any = None,
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the score of an episode: a number, or what else its environment returns.

        Raises:
            InstanceNotFound: There is no such instance.
            InstanceFailed: The environment failed, and the instance has ended.
        """
        return await self._run(build(Evaluate, instance_id, messages, params, timeout))

    async def release_instance(self, instance_id: str) -> bool:
        """End an episode; return whether there was one."""
        return bool(await self._run(build(ReleaseInstance, instance_id)))

    async def _run(self, declaration: Tool) -> Any:
        result = await self.call(declaration)
        if result.is_error:
            raise _failure(result)
        return json.loads(result.stdout)


def _failure(result: ToolResult) -> SandmeshError:
    about: dict[str, Any] = (result.structured or {}).get("error") or {}
    message = str(about.get("message") or result.text.strip())
    words = [str(line) for line in about.get("last_words") or ()]
    made = _CLASSES.get(str(about.get("kind")), InstanceFailed)
    if made is not InstanceFailed:
        return made(message)
    facts = {"fault": str(about.get("fault") or result.fault or "task"), "last_words": "\n".join(words)}
    shown = f"{message} Its last words: {' | '.join(words[-3:])}" if words else message
    return InstanceFailed(shown, facts)
