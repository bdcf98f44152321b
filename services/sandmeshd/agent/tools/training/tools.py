"""The training tools: task lists, and the instances of environments by id."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sandmesh._tools import Tool
from sandmesh._tools.training import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import unless_stopped
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.tools.training.failures import (
    ALREADY_EXISTS,
    CAPABILITY_MISSING,
    FAILED,
    NOT_FOUND,
    REFUSED,
    WRONG_STATE,
    EpisodeFailure,
)
from sandmeshd.agent.tools.training.host import EnvironmentHost, EnvironmentSource, HostContext, find_clock_library
from sandmeshd.agent.tools.training.instance import InstanceProcess, Request

MOST_INSTANCES: Final = 200
SECONDS: Final = 120.0
"""How long a request may take whose caller does not say."""
_STOPPED: Final = "The call was stopped."


@dataclass
class OpenEpisode:
    """An instance by its id; it is `over` once a step has said so."""

    instance: InstanceProcess
    over: bool = False


class Training:
    """The environments of a sandbox and their instances."""

    def __init__(self, context: HostContext, sources: Mapping[str, EnvironmentSource]) -> None:
        self._context = context
        self._sources = sources
        self._hosts: dict[tuple[str, str], asyncio.Task[EnvironmentHost]] = {}
        """By the environment's name, and the library that fakes the clock."""
        self._episodes: dict[str, OpenEpisode | None] = {}
        """By id; None while it is created."""
        self._numbers = itertools.count(1)

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        functions: dict[type[Tool], Callable[[Any], Awaitable[Any]]] = {
            GetTaskIds: self.list_tasks,
            GetEnvProfile: self.list_tasks,
            CreateInstance: self.create,
            Step: self.step,
            Evaluate: self.evaluate,
            ReleaseInstance: self.release,
        }
        return {declaration: partial(_run, function) for declaration, function in functions.items()}

    async def close(self) -> None:
        """End all processes."""
        for episode in self._episodes.values():
            if episode is not None:
                episode.instance.kill()
        for task in self._hosts.values():
            task.cancel()
        for host in await asyncio.gather(*self._hosts.values(), return_exceptions=True):
            if isinstance(host, EnvironmentHost):
                host.end()

    async def list_tasks(self, request: GetTaskIds | GetEnvProfile) -> Any:
        """Return the ids of a split's tasks, as a separate process lists them."""
        name, params = _params(request.env_type, request.params)
        instance = await self._open(name)
        try:
            arguments = {"split": request.split, "params": params}
            return await instance.run(Request("tasks", arguments, request.timeout or SECONDS))
        finally:
            instance.kill()

    async def create(self, request: CreateInstance) -> Any:
        """Create an instance and return its first state."""
        name, params = _params(request.env_type, request.params)
        fixed, library = _fixed(request)
        params = {**params, **({} if request.seed is None else {"seed": request.seed})}
        instance_id = request.instance_id or f"exp_{int(time.time())}_{secrets.token_hex(4)}"
        if instance_id in self._episodes:
            message = f"There is an instance {instance_id!r}: choose another id, or release it."
            raise EpisodeFailure(ALREADY_EXISTS, message)
        if len(self._episodes) >= MOST_INSTANCES:
            message = f"The sandbox has {MOST_INSTANCES} instances: release some, or create another sandbox."
            raise EpisodeFailure(WRONG_STATE, message, fault="limit")
        self._episodes[instance_id] = None
        try:
            instance = await self._open(name, library)
            info = {"instance_id": instance_id, "task_id": str(request.task_id)}
            arguments = {"task_id": info["task_id"], "params": params, "info": info, "fixed": fixed}
            created = await _begin(instance, Request("create", arguments, request.timeout or SECONDS))
        except BaseException:
            del self._episodes[instance_id]
            raise
        self._episodes[instance_id] = OpenEpisode(instance)
        return created

    async def step(self, request: Step) -> Any:
        """Take a step."""
        episode = self._find(request.instance_id)
        if episode.over:
            message = f"The episode of {request.instance_id!r} is over: evaluate or release it, and create another."
            raise EpisodeFailure(WRONG_STATE, message)
        action: Any = {} if request.action is None else request.action
        arguments = {"action": action, "params": request.params or {}}
        stepped = await episode.instance.run(Request("step", arguments, request.timeout or SECONDS))
        episode.over = isinstance(stepped, dict) and bool(stepped.get("is_terminated"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # of JSON
        return stepped  # pyright: ignore[reportUnknownVariableType]  # as above

    async def evaluate(self, request: Evaluate) -> Any:
        """Return the score."""
        episode = self._find(request.instance_id)
        messages: Any = {} if request.messages is None else request.messages
        arguments = {"messages": messages, "params": request.params or {}}
        return await episode.instance.run(Request("evaluate", arguments, request.timeout or SECONDS))

    async def release(self, request: ReleaseInstance) -> bool:
        """End an instance; return whether there was one."""
        episode = self._episodes.get(request.instance_id)
        if episode is None:
            return False
        del self._episodes[request.instance_id]
        await episode.instance.close()
        return True

    def _find(self, instance_id: str) -> OpenEpisode:
        episode = self._episodes.get(instance_id)
        if episode is None:
            known = ", ".join(name for name, one in self._episodes.items() if one is not None) or "none"
            raise EpisodeFailure(NOT_FOUND, f"There is no instance {instance_id!r}; the instances are: {known[:1000]}.")
        if episode.instance.busy:
            message = f"The instance {instance_id!r} is busy with another call: wait for its end."
            raise EpisodeFailure(WRONG_STATE, message)
        return episode

    async def _open(self, name: str, clock: str = "") -> InstanceProcess:
        host = await self._host(name, clock)
        instance = InstanceProcess(host, next(self._numbers), self._context.memory)
        try:
            await instance.open()
        except BaseException:
            instance.kill()
            raise
        return instance

    async def _host(self, name: str, clock: str) -> EnvironmentHost:
        """Return the process that has imported an environment, started where none runs."""
        if name not in self._sources:
            known = ", ".join(self._sources) or "none"
            raise EpisodeFailure(REFUSED, f"There is no environment {name!r}; the sandbox has: {known}.")
        task = self._hosts.get((name, clock))
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            host = _open_host(self._context, self._sources[name], clock)
            task = self._hosts[name, clock] = asyncio.create_task(host)
        return await asyncio.shield(task)


async def _open_host(context: HostContext, source: EnvironmentSource, clock: str) -> EnvironmentHost:
    host = EnvironmentHost(context, source, clock)
    await host.open()
    return host


async def _begin(instance: InstanceProcess, request: Request) -> Any:
    try:
        return await instance.run(request)
    except BaseException:
        instance.kill()
        raise


def _fixed(request: CreateInstance) -> tuple[dict[str, Any], str]:
    """Return what the episode begins with, and the library that its clock needs.

    Raises:
        EpisodeFailure: The clock is not a time, or the sandbox has no library for it.
    """
    fixed: dict[str, Any] = {} if request.seed is None else {"seed": request.seed}
    clock = (request.params or {}).get("clock_start")
    if clock is None:
        return fixed, ""
    try:
        start = datetime.fromisoformat(clock)
    except (TypeError, ValueError):
        message = f"clock_start={clock!r} is not a time: write it as '2026-01-01T00:00:00Z'."
        raise EpisodeFailure(REFUSED, message) from None
    library = find_clock_library()
    if not library:
        message = (
            "clock_start needs libfaketime, which the sandbox does not have: install the package faketime on its node."
        )
        raise EpisodeFailure(CAPABILITY_MISSING, message)
    return {**fixed, "clock": (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()}, library


def _params(env_type: str, params: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any]]:
    """Return an environment's name, and the parameters with what follows the colon: "gym:CartPole-v1"."""
    name, _, inner = env_type.partition(":")
    return name, {**(params or {}), "name": inner}


async def _run(function: Callable[[Any], Awaitable[Any]], request: Any, call: RunningCall) -> Outcome:
    call.started()

    async def work() -> Any:
        return await function(request)

    try:
        result = await unless_stopped(call, work())
    except CallStopped:
        await call.text(_STOPPED)
        return Outcome(True, call.stop_reason or pb.END_REASON_CANCELLED, message=_STOPPED)
    except EpisodeFailure as failure:
        return await failure.write(call)
    except ToolFailure as failure:
        return await EpisodeFailure(FAILED, str(failure), fault="infra").write(call)
    await call.text(json.dumps(result), "stdout")
    return Outcome()


def make_training(processes: ProcessSpawner, config: agent_pb2.AgentConfig, memory: Memory) -> Training:
    """Create the environments of a sandbox; nothing is started."""
    context = HostContext(processes, config.python, dict(config.environment), config.workspace, memory)
    sources = {
        name: EnvironmentSource(name, one.target, one.source) for name, one in sorted(config.environments.items())
    }
    return Training(context, sources)
