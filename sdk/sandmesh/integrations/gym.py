"""Environments of Gymnasium that run in sandboxes: `SandmeshEnv("CartPole-v1")` is a `gymnasium.Env`.

The interface is that of https://gymnasium.farama.org/api/env/. Each episode is an instance in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np
from typing_extensions import override

from sandmesh import TrainingSandbox
from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.integrations.versions import framework

with framework("gymnasium"):
    import gymnasium
    from gymnasium import spaces

_LARGEST_SEED: Final = 2**31


class SandmeshEnv(gymnasium.Env[Any, Any]):
    """An environment of Gymnasium in a sandbox: a new one, which `close` releases, or `box`.

    `kwargs` are those of `gymnasium.make`. Nothing is rendered. Environments that share a box run side by side.

    Raises:
        InvalidArgument: The sandbox has no such environment, or a space that has no form in JSON.
        InstanceFailed: The environment failed; `reset` begins another episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as the class above declares it

    def __init__(self, name: str, box: TrainingSandbox | None = None, **kwargs: Any) -> None:
        self._name = f"gym:{name}"
        self._params = {"kwargs": kwargs} if kwargs else {}
        self._own = TrainingSandbox() if box is None else None
        self._box = self._own or cast("TrainingSandbox", box)
        if self._own is not None:
            self._own.start()
        self._instance: str | None = None
        try:
            first = self._begin(0, None)
            self.observation_space = read_space(first["observation_space"])
            self.action_space = read_space(first["action_space"])
        except BaseException:
            self.close()
            raise

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; without a seed, with the next one of this environment's generator."""
        super().reset(seed=seed)
        inner = int(self.np_random.integers(_LARGEST_SEED))
        first = self._begin(inner if seed is None else seed, options)
        return _read(self.observation_space, first["observation"]), first["gym_info"]

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Raises:
            WrongState: There is no episode: `reset` comes first.
        """
        if self._instance is None:
            raise WrongState("no episode has begun: call reset() first", {"state": "NEW"})
        stepped = self._box.step(self._instance, {"action": _write(self.action_space, action)})
        info = stepped["info"]
        seen = _read(self.observation_space, info["observation"])
        return seen, float(stepped["reward"]), info["terminated"], info["truncated"], info["gym_info"]

    @override
    def close(self) -> None:
        """Release the sandbox, or of a shared one the instance; closing twice changes nothing."""
        instance, self._instance = self._instance, None
        own, self._own = self._own, None
        if own is not None:
            own.close()
        elif instance is not None and self._box.twin.is_open:
            self._box.release_instance(instance)

    def _begin(self, seed: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        instance, self._instance = self._instance, None
        if instance is not None:
            self._box.release_instance(instance)
        params = {**self._params, "options": dict(options)} if options else self._params
        info: dict[str, Any] = self._box.create_instance(self._name, str(seed), params=params)["info"]
        self._instance = info["instance_id"]
        return info


def read_space(described: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that a sandbox described.

    Raises:
        InvalidArgument: Its type is unknown to this release.
    """
    kind = str(described.get("type"))
    if kind not in _SPACES:
        raise InvalidArgument(f"a space of the type {kind!r} is unknown here: use the sandbox's own release")
    return _SPACES[kind](described)


def _read_box(described: Mapping[str, Any]) -> spaces.Box:
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
    low, high = (
        np.array([float(each) for each in described[name]], dtype=dtype).reshape(shape) for name in ("low", "high")
    )
    return spaces.Box(low, high, shape, cast("Any", dtype.type))


def _read_text(described: Mapping[str, Any]) -> spaces.Text:
    lengths = {name: int(described[name]) for name in ("min_length", "max_length")}
    return spaces.Text(charset=str(described["charset"]), **lengths)


_SPACES: Final[Mapping[str, Callable[[Mapping[str, Any]], spaces.Space[Any]]]] = {
    "Box": _read_box,
    "Discrete": lambda described: spaces.Discrete(described["n"], start=described["start"]),
    "MultiDiscrete": lambda described: spaces.MultiDiscrete(described["nvec"]),
    "MultiBinary": lambda described: spaces.MultiBinary(described["shape"]),
    "Text": _read_text,
    "Tuple": lambda described: spaces.Tuple([read_space(each) for each in described["spaces"]]),
    "Dict": lambda described: spaces.Dict({name: read_space(each) for name, each in described["spaces"].items()}),
}


def _inner(space: Any) -> Any:
    """Return the spaces that a space is made of."""
    return space.spaces


def _read(space: spaces.Space[Any], value: Any) -> Any:
    if isinstance(space, spaces.Tuple):
        return tuple(_read(inner, each) for inner, each in zip(_inner(space), value, strict=True))
    if isinstance(space, spaces.Dict):
        return {name: _read(inner, value[name]) for name, inner in _inner(space).items()}
    if isinstance(space, spaces.Text):
        return value
    if isinstance(space, spaces.Discrete):
        return np.int64(value)
    return np.asarray(value, dtype=space.dtype)


def _write(space: spaces.Space[Any], value: Any) -> Any:
    if isinstance(space, spaces.Tuple):
        return [_write(inner, each) for inner, each in zip(_inner(space), value, strict=True)]
    if isinstance(space, spaces.Dict):
        return {name: _write(inner, value[name]) for name, inner in _inner(space).items()}
    return value.tolist() if hasattr(value, "tolist") else value
