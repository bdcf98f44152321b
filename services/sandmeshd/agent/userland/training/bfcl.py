"""The Berkeley Function Calling Leaderboard: its data and its checkers, out of the package bfcl-eval.

Of the package only what needs neither a network nor a model is used: the categories of single and of several turns. The
table of models, whose import would need the clients of all vendors, is replaced by one entry that changes no names.
An episode goes as `bfcl_eval.model_handler.base_handler` has it: a turn ends with an answer without calls, and
the episode after 21 steps of one turn. See https://github.com/ShishirPatil/gorilla.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Final

from sandmesh.shared.environment import Environment, EnvironmentRefusal, Params
from sandmeshd.agent.userland.training.tool_calls import TrainingCall, read_calls, write_tools

COMPLETED: Final = "[CONVERSATION_COMPLETED]"
_MODEL_TABLE: Final = "bfcl_eval.constants.model_config"
_DEFAULT: Final = "multi_turn"
_TEST_EACH: Final = 5
_UNKNOWN: Final = "unknown_function()"


def _load(name: str) -> Any:
    """Import a module of the package, which writes below BFCL_PROJECT_ROOT and has a table of models."""
    os.environ.setdefault("BFCL_PROJECT_ROOT", tempfile.gettempdir() + "/bfcl")
    if _MODEL_TABLE not in sys.modules:
        table: Any = ModuleType(_MODEL_TABLE)
        table.MODEL_CONFIG_MAPPING = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
        sys.modules[_MODEL_TABLE] = table
    return import_module(f"bfcl_eval.{name}")


_CATEGORIES: Any = _load("constants.category_mapping")
_CONFIG: Any = _load("constants.eval_config")
_PROMPTS: Any = _load("constants.default_prompts")
_UTILS: Any = _load("utils")
_AST: Any = _load("eval_checker.ast_eval.ast_checker")
_TURNS: Any = _load("eval_checker.multi_turn_eval.multi_turn_checker")
_EXECUTION: Any = _load("eval_checker.multi_turn_eval.multi_turn_utils")
_LANGUAGE: Any = _load("constants.enums").Language
SUPPORTED: Final = tuple(_CATEGORIES.SINGLE_TURN_CATEGORY + _CATEGORIES.MULTI_TURN_CATEGORY)


@cache
def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as the other programs of the template
        return [line for line in file if line.strip()]


def _questions(category: str) -> list[str]:
    return _lines(f"{_CONFIG.PROMPT_PATH}/{_CATEGORIES.VERSION_PREFIX}_{category}.json")


def _id_of(line: str) -> str:
    return line.split('"', 4)[3]


# Read before instances are forked, which share it.
_PLACES: Final = {
    _id_of(line): (category, number) for category in SUPPORTED for number, line in enumerate(_questions(category))
}


class BfclEnvironment(Environment):
    """A task of the leaderboard; an action is a message of an assistant, with calls of tools or without."""

    splits: ClassVar[Sequence[str]] = ("train", "test", "all")

    @classmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return the tasks of categories: one in five is in the split "test"."""
        chosen = _categories(str(params.get("name") or params.get("category") or _DEFAULT))
        tasks = [(number, _id_of(line)) for category in chosen for number, line in enumerate(_questions(category))]
        wanted = {"train": (False,), "test": (True,), "all": (False, True)}[split]
        return [task for number, task in tasks if (number % _TEST_EACH == _TEST_EACH - 1) in wanted]

    def __init__(self, task_id: str, params: Params) -> None:
        """Load the task."""
        if task_id not in _PLACES:
            raise EnvironmentRefusal(f"There is no task {task_id!r}: get_task_ids lists those of a category.")
        self._id = task_id
        self._category, number = _PLACES[task_id]
        line = _questions(self._category)[number]
        self._entry = _prepared(line)
        self._shown = _UTILS.add_language_specific_hint_to_function_doc([_prepared(line)])[0]
        self._answers = _ground_truth(self._category, number)
        self._functions: list[dict[str, Any]] = list(self._shown["function"])
        self._turns: list[list[list[TrainingCall]]] = [[]]
        self._over = False
        self._scores = 0

    @property
    def _several_turns(self) -> bool:
        return bool(_UTILS.is_multi_turn(self._category))

    def reset(self) -> Mapping[str, Any]:
        """Return the tools and the first question."""
        questions = self._entry["question"]
        info = {
            "test_id": self._id,
            "category": self._category,
            "tools": self._functions,
            "tools_count": len(self._functions),
            "questions_count": len(questions),
        }
        system = {"role": "system", "content": write_tools(self._functions)}
        return {"state": [system, *questions[0]], "info": info}

    def step(self, action: Any, params: Params) -> Mapping[str, Any]:
        """Take an assistant's message: run its calls, or go on to the next turn."""
        del params
        calls = read_calls(action)
        if not self._several_turns:
            self._turns[-1].append(calls)
            return self._complete()
        if not calls:
            return self._next_turn()
        self._turns[-1].append(calls)
        results = self._execute(calls)
        if len(self._turns[-1]) > _PROMPTS.MAXIMUM_STEP_LIMIT:
            return self._complete()
        content = "\n".join(
            f"<tool_response>\n{json.dumps({'name': call.name, 'content': result})}\n</tool_response>"
            for call, result in zip(calls, results, strict=True)
        )
        return {**_said([{"role": "user", "content": content}]), "info": {"tool_results": results}}

    def evaluate(self, messages: Any, params: Params) -> Any:
        """Return what the package's checkers find: with `sparse` 1.0 or 0.0, else a mapping with `accuracy`."""
        del messages
        found = self._check()
        accuracy = float(bool(found["valid"]))
        if params.get("sparse"):
            return accuracy
        about = {"test_id": self._id, "category": self._category, "completed": self._over}
        return {**about, "valid": bool(found["valid"]), "accuracy": accuracy, "error": _texts(found)}

    def _complete(self) -> Mapping[str, Any]:
        self._over = True
        state = [{"role": "user", "content": COMPLETED}]
        return {"state": state, "reward": float(bool(self._check()["valid"])), "is_terminated": True, "info": {}}

    def _next_turn(self) -> Mapping[str, Any]:
        turn = len(self._turns)
        if turn == len(self._entry["question"]):
            return self._complete()
        self._turns.append([])
        messages = list(self._entry["question"][turn])
        added = self._shown.get("missed_function", {}).get(str(turn), [])
        self._functions.extend(added)
        if added:
            prompt = _PROMPTS.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
            messages = [
                {"role": "system", "content": write_tools(self._functions)},
                {"role": "user", "content": prompt},
            ]
        return {**_said(messages), "info": {"turn": turn, "tools": self._functions if added else None}}

    def _execute(self, calls: Sequence[TrainingCall]) -> list[str]:
        results, _ = _EXECUTION.execute_multi_turn_func_call(
            func_call_list=self._written(calls),
            initial_config=self._entry["initial_config"],
            involved_classes=self._entry["involved_classes"],
            model_name="sandmesh",
            test_entry_id=self._id,
            long_context="long_context" in self._category,
        )
        return [str(result) for result in results]

    def _written(self, calls: Sequence[TrainingCall]) -> list[str]:
        # The package evaluates these texts: a name that no tool has must not become another program's. Tools that are
        # not shown yet are run, too, as it runs them.
        known = _methods(tuple(self._entry["involved_classes"]))
        return [call.written() if call.name in known and call.is_plain else _UNKNOWN for call in calls]

    def _check(self) -> Mapping[str, Any]:
        if self._several_turns:
            return self._check_turns()
        calls = [call for step in self._turns[-1] for call in step]
        if _UTILS.is_relevance_or_irrelevance(self._category):
            return {"valid": bool(calls) != ("irrelevance" in self._category)}
        decoded = [{call.name: call.arguments} for call in calls]
        if not _UTILS.is_function_calling_format_output(decoded):
            return {"valid": False, "error_type": "ast_decoder:decoder_wrong_output_format"}
        language = _LANGUAGE.JAVA if "java" in self._category else _LANGUAGE.PYTHON
        language = _LANGUAGE.JAVASCRIPT if "javascript" in self._category else language
        checked: Mapping[str, Any] = _AST.ast_checker(
            self._entry["function"], decoded, self._answers, language, self._category, "sandmesh"
        )
        return checked

    def _check_turns(self) -> Mapping[str, Any]:
        if len(self._turns) != len(self._answers):
            return {"valid": False, "error_type": "multi_turn:force_terminated"}
        decoded = [[self._written(calls) for calls in turn] for turn in self._turns]
        # The package keeps what it executes on by this name: a second check starts over.
        self._scores += 1
        name = f"sandmesh{self._scores}"
        checked: Mapping[str, Any] = _TURNS.multi_turn_checker(
            decoded, self._answers, self._entry, self._category, name
        )
        return checked


@cache
def _methods(classes: tuple[str, ...]) -> frozenset[str]:
    """Return the names of all tools that classes of the package have."""
    homes = {name: import_module(_EXECUTION.CLASS_FILE_PATH_MAPPING[name]) for name in classes}
    names = (name for each, home in homes.items() for name in dir(getattr(home, each)))
    return frozenset(name for name in names if not name.startswith("_"))


def _categories(name: str) -> Sequence[str]:
    chosen: Sequence[str] = _CATEGORIES.TEST_COLLECTION_MAPPING.get(name, [name])
    found = [category for category in SUPPORTED if category in chosen]
    if not found:
        known = ", ".join([*SUPPORTED, "multi_turn", "single_turn", "live", "non_live", "all"])
        reason = "is not served" if name in _CATEGORIES.ALL_CATEGORIES else "is unknown"
        raise EnvironmentRefusal(f"The category {name!r} {reason}: choose from {known}.")
    return found


def _prepared(line: str) -> dict[str, Any]:
    entry: dict[str, Any] = _UTILS.populate_test_cases_with_predefined_functions([json.loads(line)])[0]
    return entry


def _ground_truth(category: str, number: int) -> Any:
    if _UTILS.is_relevance_or_irrelevance(category):
        return None
    path = f"{_CONFIG.POSSIBLE_ANSWER_PATH}/{_CATEGORIES.VERSION_PREFIX}_{category}.json"
    return json.loads(_lines(path)[number])["ground_truth"]


def _said(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"state": messages, "reward": 0.0, "is_terminated": False}


def _texts(found: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("error", "error_message", "error_type")
    return {
        name: str(found[name]) if name != "error" else [str(e) for e in found[name]] for name in kept if name in found
    }
