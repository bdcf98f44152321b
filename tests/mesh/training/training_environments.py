"""Training environments for the tests: what a user writes, and every way in which one misbehaves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from sandmesh import Environment, EnvironmentRefusal, SandboxRegistry
from sandmesh.sandbox.training.boxes import TrainingSandboxAsync

TASKS = {"train": [f"number-{number}" for number in (3, 7, 9)], "test": ["number-5"]}
LARGE = 20 << 20


def secret_of(task_id: str) -> int:
    """Return the number of a task."""
    return int(task_id.removeprefix("number-"))


class Guess(Environment):
    """A number is to be guessed; the reward is 1 for it, and its distance is told else."""

    @classmethod
    def list_tasks(cls, split: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return the tasks of a split."""
        return TASKS[split]

    def __init__(self, task_id: str, params: Mapping[str, Any]) -> None:
        """Keep the number."""
        if task_id not in TASKS["train"] + TASKS["test"]:
            raise EnvironmentRefusal(f"There is no task {task_id!r}.")
        self._secret = secret_of(task_id)
        self._guesses: list[int] = []
        self._closing = params.get("closing")

    def reset(self) -> Mapping[str, Any]:
        """Return the question."""
        return {"state": [{"role": "user", "content": "Guess."}], "info": {"pid": os.getpid()}}

    def step(self, action: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a guess."""
        said: Any = cast("dict[str, Any]", action).get("content") if isinstance(action, dict) else None
        if not str(said).isdecimal():
            raise EnvironmentRefusal("An action is {'role': 'assistant', 'content': a number}.")
        self._guesses.append(int(said))
        found = self._guesses[-1] == self._secret
        answer = "Yes." if found else f"Off by {abs(self._guesses[-1] - self._secret)}."
        return {"state": [{"role": "user", "content": answer}], "reward": float(found), "is_terminated": found}

    def evaluate(self, messages: Any, params: Mapping[str, Any]) -> Any:
        """Return 1 over the guesses that it took."""
        found = self._secret in self._guesses
        return {"accuracy": found / len(self._guesses)} if params.get("whole") else float(found)

    def close(self) -> None:
        """Leave a file, where that was requested."""
        if self._closing:
            with open(self._closing, "w", encoding="utf-8") as file:  # noqa: PTH123 - one import less is shipped
                file.write("closed")


def spin() -> None:
    """Do not end."""
    while True:
        time.sleep(1)


def flood() -> None:
    """Print without an end."""
    while True:
        sys.stdout.write("flooded with words\n" * 1000)


def fork() -> None:
    """Start a process that stays, and exit."""
    if os.fork() == 0:
        os.close(1)
        os.close(2)
        time.sleep(600)
    os._exit(3)


def fail() -> None:
    """Raise."""
    raise RuntimeError("the world is flat")


def scribble() -> None:
    """Write into every descriptor."""
    for descriptor in range(3, 32):
        with suppress(OSError):
            os.write(descriptor, b"\xff" * 64)


MISDEEDS: dict[Any, Callable[[], object]] = {
    "hangs": spin,
    "floods": flood,
    "exits": lambda: sys.exit(7),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "forks": fork,
    "raises": fail,
    "says too much": lambda: {"state": "x" * LARGE, "reward": 0, "is_terminated": False},
    "returns no reward": lambda: {"state": [], "is_terminated": False},
    "returns an object": lambda: {"state": object(), "reward": 0, "is_terminated": False},
    "writes to its descriptors": scribble,
}


class Broken(Environment):
    """An environment whose every action is a way to misbehave."""

    @classmethod
    def list_tasks(cls, split: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Hang in one split."""
        if split == "test":
            spin()
        return ["one"]

    def __init__(self, task_id: str, params: Mapping[str, Any]) -> None:
        """Fail in some tasks."""
        if task_id == "raises":
            raise ValueError("no such luck")
        if task_id == "hangs":
            sys.stderr.write("about to hang\n")
            spin()

    def reset(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def step(self, action: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Misbehave."""
        sys.stdout.write(f"now it {action}\n")
        sys.stdout.flush()
        done: Any = MISDEEDS[action]() if action in MISDEEDS else None
        return done or {"state": [], "reward": 0.5, "is_terminated": False}

    def evaluate(self, messages: Any, params: Mapping[str, Any]) -> Any:
        """Return a constant."""
        return 1.0


@SandboxRegistry.register(
    "runtime-sandbox-training",
    sandbox_type="games",
    timeout=None,
    environments={"guess": Guess, "broken": Broken, "unimportable": "no_such_module:Environment"},
)
class GamesSandboxAsync(TrainingSandboxAsync):
    """A type with environments of its own."""
