"""Games of TextArena by name: `textarena:GuessTheNumber-v0`. A task is a seed; an action is a message of the player.

Of the package those games are served that one player plays and that need nothing which the package does not ship:
others download lists of words, or ask a model. See https://github.com/LeonGuertler/TextArena.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Final, cast

from sandmesh.shared.environment import Environment, EnvironmentRefusal, Params

GAMES: Final = (
    *("2048", "Bandit", "Blackjack", "Countdown", "Cryptarithm", "FifteenPuzzle", "FrozenLake", "GuessTheNumber"),
    *("LightsOut", "LogicPuzzle", "Mastermind", "Minesweeper", "PegJump", "RushHour", "Secretary", "Set"),
    *("Slitherlink", "Sudoku", "ThreeCardMonte", "TowerOfHanoi"),
)
_PACKAGE: Any = import_module("textarena")
_LONGEST_SEED: Final = 18
_NAMES: Final = tuple(name for name in _PACKAGE.envs.registration.ENV_REGISTRY if name.partition("-v0")[0] in GAMES)
_FIRST_SEEDS: Final = {"train": 0, "test": 1_000_000}
_TASKS: Final = 100
_FORM: Final = "An action is the player's message, {'role': 'assistant', 'content': text}."


class TextArenaEnvironment(Environment):
    """One game; its last step has the player's reward."""

    splits: ClassVar[Sequence[str]] = tuple(_FIRST_SEEDS)

    @classmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return the seeds of a split: 0 and on, or 1000000 and on."""
        _find(params)
        return [str(_FIRST_SEEDS[split] + number) for number in range(int(params.get("count", _TASKS)))]

    def __init__(self, task_id: str, params: Params) -> None:
        """Set the game up."""
        if not (task_id.isdecimal() and len(task_id) <= _LONGEST_SEED):
            raise EnvironmentRefusal(f"A task is a seed, such as '7', not {task_id!r}.")
        self._game: Any = _PACKAGE.make(_find(params))
        self._seed = int(task_id)
        self._shown = 0
        self._reward = 0.0
        self._over = False

    def reset(self) -> Mapping[str, Any]:
        """Return the rules and the first position."""
        # Some games draw with the module's own generator before they seed it.
        random.seed(self._seed)
        self._game.reset(num_players=1, seed=self._seed)
        return {"state": self._news(), "info": {"game": self._game.env_id}}

    def step(self, action: Any, params: Params) -> Mapping[str, Any]:
        """Send the player's message to the game."""
        del params
        content: Any = cast("dict[str, Any]", action).get("content") if isinstance(action, dict) else None
        if not isinstance(content, str):
            raise EnvironmentRefusal(_FORM)
        self._over, info = self._game.step(action=content)
        if not self._over:
            return {"state": self._news(), "reward": 0.0, "is_terminated": False, "info": dict(info)}
        rewards, ended = self._game.close()
        self._reward = float(rewards[0])
        about = dict(ended[0])
        state = [{"role": "user", "content": str(about.get("reason", "The game is over."))}]
        return {"state": state, "reward": self._reward, "is_terminated": True, "info": about}

    def evaluate(self, messages: Any, params: Params) -> Any:
        """Return the player's reward, 0 before the end."""
        return self._reward

    def _news(self) -> list[dict[str, str]]:
        # The package's wrappers return all that was said so far.
        _, said = self._game.get_observation()
        text, before = str(said), self._shown
        self._shown = len(text)
        return [{"role": "user", "content": text[before:].strip() if before else text}]


def _find(params: Params) -> str:
    name = str(params.get("name") or "")
    if name not in _NAMES:
        known = ", ".join(sorted(game for game in _NAMES if game.endswith("-v0")))
        raise EnvironmentRefusal(f"There is no game {name!r}, as textarena:GuessTheNumber-v0: choose from {known}.")
    return name
