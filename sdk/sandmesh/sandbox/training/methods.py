"""The training tools as methods that return what the environment returned, as plain JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from sandmesh._tools import TOOLS, Tool, build
from sandmesh._tools.training import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step
from sandmesh.errors import (
    AlreadyExists,
    CapabilityMissing,
    Fault,
    InvalidArgument,
    NotFound,
    SandmeshError,
    WrongState,
)
from sandmesh.results import ToolResult
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.training.transcript import (
    EpisodeRecording,
    Replay,
    compare,
    describe,
    read_recording,
)


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
    "CAPABILITY_MISSING": CapabilityMissing,
    "INSTANCE_FAILED": InstanceFailed,
}


class TrainingMethodsAsync(SandboxAsync):
    """The methods of an async box with training environments."""

    _recording: EpisodeRecording | None = None

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
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Begin an episode: {"state": [...], "info": {"instance_id", "task_id", ...}}.

        `seed` fixes the generators of `random` and numpy in the instance, and is `params["seed"]` there;
        `params={"clock_start": "2026-01-01T00:00:00Z"}` sets its clock.

        Raises:
            CapabilityMissing: `clock_start` needs libfaketime, which the sandbox does not have.
            InvalidArgument: The sandbox has no such environment, or the environment no such task.
            AlreadyExists: There is an instance of that id.
            InstanceFailed: The environment failed; nothing is left of the instance.
        """
        request = build(CreateInstance, env_type, task_id, instance_id, params, timeout, seed)
        first: dict[str, Any] = await self._run(request)
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

    async def record_episodes(self, path: str | os.PathLike[str] | None) -> None:
        """Append the calls of all episodes from now on to a new file, as JSON lines; None: record no more.

        Raises:
            InvalidArgument: The file exists, or cannot be written.
        """
        self._recording = None if path is None else EpisodeRecording(Path(path), self.sandbox_type)

    async def replay_episodes(self, path: str | os.PathLike[str], ignore: Sequence[str] = ()) -> Replay:
        """Make the calls of a recording again, one after another, and return where their results differ.

        `ignore` has the parts of results that may differ, as "result.info.pid".

        Raises:
            NotFound: There is no such file.
            InvalidArgument: It is not a recording of episodes.
        """
        replay = Replay()
        for call in read_recording(Path(path)):
            try:
                outcome = {"result": await self._run(build(TOOLS[call["tool"]], **call["arguments"]))}
            except SandmeshError as error:
                outcome = {"error": describe(error)}
            replay.calls += 1
            replay.differences += compare(call, outcome, ignore)
        return replay

    async def _run(self, declaration: Tool) -> Any:
        recording = self._recording
        try:
            result = await self.call(declaration)
            if result.is_error:
                raise _failure(result)
        except SandmeshError as error:
            if recording is not None:
                recording.add_failure(declaration, error)
            raise
        value = json.loads(result.stdout)
        if recording is not None:
            recording.add_result(declaration, value)
        return value


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
