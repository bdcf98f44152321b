"""An instance of an environment: its requests, one after another, each answered by one message.

A message is a frame with a JSON object: to here {"id", "op", "arguments"}, from here {"id", "result"}, {"id",
"refused": text} or {"id", "failed": text}; after the last the process ends.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from sandmesh.shared import frames
from sandmesh.shared.environment import Environment, EnvironmentRefusal


def fix_seed(seed: int) -> None:
    """Seed the generators that modules share: those of `random` and, where it is installed, of numpy."""
    random.seed(seed)
    if find_spec("numpy") is not None:
        import_module("numpy").random.seed(seed % (1 << 32))


def start_clock(start: float) -> None:
    """Set the wall clock of this process and of those that it starts; seconds since 1970.

    libfaketime is loaded, and reads its variable at each call.
    """
    os.environ["FAKETIME"] = f"{start - time.time():+.6f}"


_STEP: Final = ("state", "reward", "is_terminated", "info")
_LAST_FRAMES: Final = -8


class Instance:
    """The state of an instance: nothing before `create`."""

    def __init__(self, environment: type[Environment]) -> None:
        self._class = environment
        self._made: Environment | None = None

    def run(self, op: str, arguments: dict[str, Any]) -> Any:
        """Carry out a request."""
        operations: dict[str, Callable[..., Any]] = {
            "tasks": self._tasks,
            "create": self._create,
            "step": self._step,
            "evaluate": self._evaluate,
        }
        return operations[op](**arguments)

    def close(self) -> None:
        """Close the environment."""
        if self._made is not None:
            self._made.close()

    def _tasks(self, split: str, params: dict[str, Any]) -> Any:
        if split not in self._class.splits:
            known = ", ".join(self._class.splits)
            raise EnvironmentRefusal(f"There is no split {split!r}: choose from {known}.")
        return list(self._class.list_tasks(split, params))

    def _create(self, task_id: str, params: dict[str, Any], info: dict[str, Any], fixed: dict[str, Any]) -> Any:
        if "clock" in fixed:
            start_clock(fixed["clock"])
        if "seed" in fixed:
            fix_seed(fixed["seed"])
        self._made = self._class(task_id, params)
        first = dict(self._made.reset())
        return {"state": first.get("state"), "info": {**dict(first.get("info") or {}), **info}}

    def _step(self, action: Any, params: dict[str, Any]) -> Any:
        stepped = self._environment.step(action, params)
        missing = [name for name in _STEP[:3] if name not in stepped]
        if missing:
            raise TypeError(f"step() returned no {', '.join(missing)}: it must return {', '.join(_STEP)}")
        return {"info": {}, **stepped, "is_terminated": bool(stepped["is_terminated"])}

    def _evaluate(self, messages: Any, params: dict[str, Any]) -> Any:
        return self._environment.evaluate(messages, params)

    @property
    def _environment(self) -> Environment:
        if self._made is None:
            raise RuntimeError("the instance was not created")
        return self._made


def serve(channel: socket.socket, environment: type[Environment]) -> None:
    """Serve until the agent closes the socket, or a request fails."""
    instance = Instance(environment)
    stream = channel.makefile("rwb")
    while prefix := stream.read(4):
        request = json.loads(stream.read(int.from_bytes(prefix, "big")))
        reply = _answer(instance, request)
        sys.stdout.flush()
        stream.write(frames.pack(reply))
        stream.flush()
        if b'"failed": ' in reply[:64]:
            return
    instance.close()


def _answer(instance: Instance, request: dict[str, Any]) -> bytes:
    number = request["id"]
    try:
        return _encode({"id": number, "result": instance.run(request["op"], request["arguments"])})
    except EnvironmentRefusal as refusal:
        return _encode({"id": number, "refused": str(refusal)})
    except Exception as error:
        traceback.print_exc(limit=_LAST_FRAMES)
        return _encode({"id": number, "failed": f"{type(error).__name__}: {error}"[:2000]})


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return what numpy's arrays and numbers, and other collections, are in JSON."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, set | frozenset | tuple):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # of anything
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
