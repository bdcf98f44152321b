"""Environments of Gymnasium by name: `gym:CartPole-v1`. A task is a seed.

What `create` and `step` return has the form of all environments, and in `info` what the client's side needs to be a
Gymnasium environment itself: the observation, `terminated`, `truncated`, and the spaces. See
https://gymnasium.farama.org/api/env/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from sandmesh.shared.environment import Environment, EnvironmentRefusal, Params

_FIRST_SEEDS: Final = {"train": 0, "test": 1_000_000}
_TASKS: Final = 100
_LONGEST_SEED: Final = 18
_OPTIONS: Final = "options"
_RANDOM: Final = "random"


class GymEnvironment(Environment):
    """One episode of an environment of Gymnasium.

    `params["kwargs"]` are those of `gymnasium.make`, `params["options"]` those of `reset`.
    """

    splits: ClassVar[Sequence[str]] = tuple(_FIRST_SEEDS)

    @classmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return the seeds of a split: 0 and on, or 1000000 and on."""
        _find(params)
        count = int(params.get("count", _TASKS))
        return [str(_FIRST_SEEDS[split] + number) for number in range(count)]

    def __init__(self, task_id: str, params: Params) -> None:
        """Make the environment."""
        name = _find(params)
        self._seed = params.get("seed") if task_id == _RANDOM else _seed(task_id)
        self._options = params.get(_OPTIONS)
        try:
            self._env: gymnasium.Env[Any, Any] = gymnasium.make(name, **dict(params.get("kwargs") or {}))
        except (gymnasium.error.Error, TypeError) as error:
            raise EnvironmentRefusal(f"gymnasium.make({name!r}) refused: {error}") from None
        self._reward = 0.0

    def reset(self) -> Mapping[str, Any]:
        """Return the first observation."""
        observation, info = self._env.reset(seed=self._seed, options=self._options)
        about = {
            "observation": encode(self._env.observation_space, observation),
            "observation_space": describe(self._env.observation_space),
            "action_space": describe(self._env.action_space),
            "gym_info": _json_of(info),
        }
        return {"state": _state(about["observation"]), "info": about}

    def step(self, action: Any, params: Params) -> Mapping[str, Any]:
        """Take an action of the action space, as `action` or as {"action": action}."""
        del params
        plain: Any = cast("dict[str, Any]", action).get("action", action) if isinstance(action, dict) else action
        observation, reward, terminated, truncated, info = self._env.step(decode(self._env.action_space, plain))
        self._reward += float(reward)
        seen = encode(self._env.observation_space, observation)
        about = {"observation": seen, "terminated": bool(terminated), "truncated": bool(truncated)}
        return {
            "state": _state(seen),
            "reward": float(reward),
            "is_terminated": bool(terminated or truncated),
            "info": {**about, "gym_info": _json_of(info)},
        }

    def evaluate(self, messages: Any, params: Params) -> float:
        """Return the sum of the rewards so far."""
        del messages, params
        return self._reward

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _find(params: Params) -> str:
    name = str(params.get("name") or "")
    if name not in gymnasium.registry:
        example = "gym:CartPole-v1"
        raise EnvironmentRefusal(f"Gymnasium has no environment {name!r}: name one as {example!r}.")
    return name


def _seed(task_id: str) -> int:
    if not (task_id.isdecimal() and len(task_id) <= _LONGEST_SEED):
        raise EnvironmentRefusal(f"There is no task {task_id!r}: a task of gym is a seed, as '0', or 'random'.")
    return int(task_id)


def _state(observation: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": json.dumps(observation)}]


def _json_of(info: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in info.items():
        plain = _plain(value)
        if isinstance(plain, bool | int | float | str | list | None):
            kept[name] = plain
    return kept


def describe(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as JSON; bounds are texts, which have infinity.

    Raises:
        EnvironmentRefusal: It is of a type that has no such form.
    """
    kind = next((each for each in _DESCRIBED if isinstance(space, each)), None)
    if kind is None:
        raise EnvironmentRefusal(f"Spaces of the type {type(space).__name__} are not supported.")
    return {"type": kind.__name__, **_DESCRIBED[kind](space)}


def _describe_box(space: spaces.Box) -> dict[str, Any]:
    bounds = {name: [str(each) for each in getattr(space, name).ravel().tolist()] for name in ("low", "high")}
    return {**bounds, "shape": list(space.shape), "dtype": str(space.dtype)}


def _describe_text(space: spaces.Text) -> dict[str, Any]:
    return {"min_length": space.min_length, "max_length": space.max_length, "charset": "".join(space.characters)}


_DESCRIBED: Final[Mapping[type[spaces.Space[Any]], Callable[[Any], dict[str, Any]]]] = {
    spaces.Box: _describe_box,
    spaces.Discrete: lambda space: {"n": int(space.n), "start": int(space.start)},
    spaces.MultiDiscrete: lambda space: {"nvec": space.nvec.tolist()},
    spaces.MultiBinary: lambda space: {"shape": list(space.shape)},
    spaces.Text: _describe_text,
    spaces.Tuple: lambda space: {"spaces": [describe(each) for each in _inner(space)]},
    spaces.Dict: lambda space: {"spaces": {name: describe(each) for name, each in _inner(space).items()}},
}


def _inner(space: Any) -> Any:
    """Return the spaces that a space is made of."""
    return space.spaces


def encode(space: spaces.Space[Any], value: Any) -> Any:
    """Return an element of a space as JSON."""
    if isinstance(space, spaces.Tuple):
        return [encode(inner, each) for inner, each in zip(_inner(space), value, strict=True)]
    if isinstance(space, spaces.Dict):
        return {name: encode(inner, value[name]) for name, inner in _inner(space).items()}
    return _plain(value)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def decode(space: spaces.Space[Any], value: Any) -> Any:
    """Return the element of a space that JSON describes.

    Raises:
        EnvironmentRefusal: It is not one.
    """
    try:
        found = _decoded(space, value)
        fits = space.contains(found)
    except (TypeError, ValueError, KeyError):
        fits, found = False, None
    if not fits:
        raise EnvironmentRefusal(f"{value!r} is not an action of {space}.")
    return found


def _decoded(space: spaces.Space[Any], value: Any) -> Any:
    if isinstance(space, spaces.Tuple):
        return tuple(_decoded(inner, each) for inner, each in zip(_inner(space), value, strict=True))
    if isinstance(space, spaces.Dict):
        return {name: _decoded(inner, value[name]) for name, inner in _inner(space).items()}
    if isinstance(space, spaces.Discrete):
        return np.int64(value) if type(value) is int else None
    if isinstance(space, spaces.Text):
        return value
    return np.asarray(value, dtype=space.dtype).reshape(space.shape or ())
