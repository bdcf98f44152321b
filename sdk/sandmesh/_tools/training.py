"""Tools of training environments, with the names and parameters of AgentScope Runtime's.

Each answers with JSON. A failure has the structured form `{"error": {"kind", "message", "fault", "last_words"}}`.
"""

from __future__ import annotations

from typing import Annotated, Any

from sandmesh._tools.declaration import Param, Tool, tool

EnvType = Annotated[str, Param("An environment of the sandbox, as 'bfcl' or 'gym:CartPole-v1'.", min_length=1)]
Split = Annotated[str, Param("A part of the tasks, as 'train' or 'test'.", min_length=1)]
InstanceId = Annotated[str, Param("As create_instance returned or was told.", min_length=1, max_length=200)]
Params = Annotated[dict[str, Any] | None, Param("What the environment takes besides.")]
Seconds = Annotated[float | None, Param("After which the instance is ended; none: 120.", gt=0, le=86_400)]


@tool("training")
class GetTaskIds(Tool):
    """List the ids of an environment's tasks."""

    env_type: EnvType
    split: Split = "train"
    params: Params = None
    timeout: Seconds = None


@tool("training")
class GetEnvProfile(Tool):
    """List the ids of an environment's tasks, as get_task_ids does."""

    env_type: EnvType
    split: Split = "train"
    params: Params = None
    timeout: Seconds = None


@tool("training")
class CreateInstance(Tool):
    """Begin an episode of a task and return its first state: {"state", "info": {"instance_id", "task_id", ...}}."""

    env_type: EnvType
    task_id: Annotated[str | int, Param("A task that get_task_ids lists.")]
    instance_id: Annotated[str | None, Param("A new id; none: one is made.", min_length=1, max_length=200)] = None
    params: Params = None
    timeout: Seconds = None
    seed: Annotated[int | None, Param("What random numbers begin with.", ge=0, lt=1 << 63)] = None


@tool("training")
class Step(Tool):
    """Take an action in an episode and return {"state", "reward", "is_terminated", "info"}."""

    instance_id: InstanceId
    action: Annotated[Any, Param("As the environment takes it; often {'role', 'content'}.")] = None
    params: Params = None
    timeout: Seconds = None


@tool("training")
class Evaluate(Tool):
    """Return the score of an episode."""

    instance_id: InstanceId
    messages: Annotated[Any, Param("What the environment takes.")] = None
    params: Params = None
    timeout: Seconds = None


@tool("training")
class ReleaseInstance(Tool):
    """End an episode; return whether there was one."""

    instance_id: InstanceId
