"""The interface of training environments: `sandmesh.Environment`.

It is imported inside sandboxes under a template's own Python, so it needs nothing but the standard library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Params = Mapping[str, Any]


class EnvironmentRefusal(Exception):
    """A task, a split or an action that an environment does not take; the message says why and what it takes.

    An instance goes on after it; any other exception ends the instance.
    """


class Environment(ABC):
    """An instance of a training environment: one episode of one task, in a separate process.

    What its methods take and return is plain JSON; arrays of numpy become lists. What it prints is kept for the
    message of a failure.
    """

    splits: ClassVar[Sequence[str]] = ("train", "test")
    """The names that `list_tasks` is called with; any other is refused."""

    @classmethod
    @abstractmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return the ids of a split's tasks. `params["name"]` is what followed the colon in the environment's name."""

    @abstractmethod
    def __init__(self, task_id: str, params: Params) -> None:
        """Prepare a task.

        Raises:
            EnvironmentRefusal: There is no such task.
        """

    @abstractmethod
    def reset(self) -> Mapping[str, Any]:
        """Return the first state: {"state": [{"role", "content"}, ...], "info": {...}}."""

    @abstractmethod
    def step(self, action: Any, params: Params) -> Mapping[str, Any]:
        """Return {"state", "reward", "is_terminated", "info"} after an action.

        Raises:
            EnvironmentRefusal: The action has the wrong form; the episode is as it was.
        """

    @abstractmethod
    def evaluate(self, messages: Any, params: Params) -> Any:
        """Return the score of the episode so far, a number or a mapping."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release what it holds; the process ends afterwards."""
