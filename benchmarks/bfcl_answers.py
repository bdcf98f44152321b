"""Recorded answers to tasks of bfcl-eval, with the scores that the package's own runner gives them, as JSON lines.

`python bfcl_answers.py EACH` runs inside of a sandbox of the type `bfcl`, for every EACH-th task of each category. The
answers are the package's possible ones, and such with a call too few, a wrong value, or no call. The runner's functions
are the package's, but for its table of models and its readers of models' texts: an answer is read already.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, cast

os.environ["BFCL_PROJECT_ROOT"] = tempfile.mkdtemp()


def _stand_in(name: str, **attributes: Any) -> None:
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(attributes)


MODELS: defaultdict[str, SimpleNamespace] = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
_stand_in("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING=MODELS)
_stand_in("bfcl_eval.model_handler.base_handler", BaseHandler=object)
_stand_in("bfcl_eval.model_handler.utils", parse_prompt_variation_params=None)
_stand_in("dotenv", load_dotenv=None)
_stand_in("tqdm", tqdm=None)
RUNNER: Any = import_module("bfcl_eval.eval_checker.eval_runner")
EXECUTION: Any = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
CATEGORIES: Any = import_module("bfcl_eval.constants.category_mapping")
ENUMS: Any = import_module("bfcl_eval.constants.enums")

# A call: the name of a tool, and its arguments. A turn: its steps, each the calls of one message.
Step = list[list[Any]]
Turn = list[Step]


def chosen(value: Any) -> Any:
    """Return a value that the ground truth allows: of a list of possible ones the first, also inside of mappings."""
    if isinstance(value, dict):
        return first_of(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return list(map(chosen, value))  # pyright: ignore[reportUnknownArgumentType]  # of JSON
    return value


def first_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the first possible value of each parameter; one that may be left out is left out."""
    named: dict[str, list[Any]] = {name: one if isinstance(one, list) else [one] for name, one in parameters.items()}
    return {name: chosen(values[0]) for name, values in named.items() if values and values[0] != ""}


def single_turn(truth: list[dict[str, Any]], category: str) -> Step:
    """Return the calls of a possible answer; in the languages other than Python all values are texts."""
    calls: Step = []
    for each in truth:
        for name, parameters in each.items():
            arguments = first_of(parameters)
            if "java" in category:
                arguments = {key: text(value) for key, value in arguments.items()}
            calls.append([name, arguments])
    return calls


def text(value: Any) -> str:
    """Return a value as a program of Java or JavaScript has it."""
    return value if isinstance(value, str) else json.dumps(value)


def several_turns(truth: list[list[str]], classes: list[str]) -> list[Turn]:
    """Return the calls of a ground truth, a step a turn."""
    return [[[call(written, classes) for written in turn]] if turn else [] for turn in truth]


def call(written: str, classes: list[str]) -> list[Any]:
    """Return a call that is written as Python has it, its arguments by name."""
    tree: Any = ast.parse(written, mode="eval").body
    name = tree.func.id
    homes = [getattr(import_module(EXECUTION.CLASS_FILE_PATH_MAPPING[each]), each) for each in classes]
    method = next(getattr(home, name) for home in homes if hasattr(home, name))
    names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    arguments = {key: ast.literal_eval(value) for key, value in zip(names, tree.args, strict=False)}
    return [name, arguments | {each.arg: ast.literal_eval(each.value) for each in tree.keywords}]


def answer_of(entry: dict[str, Any], truth: Any, category: str) -> list[Turn]:
    """Return a possible answer; where a task has none, a call of any tool."""
    if truth is None:
        return [[[["any_tool", {"text": "x"}]]]]
    return (
        several_turns(truth, entry["involved_classes"])
        if "multi_turn" in category
        else [[single_turn(truth, category)]]
    )


def variants(turns: list[Turn]) -> Iterator[tuple[str, list[Turn]]]:
    """Yield answers: the whole one, one with a call too few, one with a wrong value, and one without calls."""
    yield "possible", turns
    cut = [[step[:-1] for step in turn] for turn in turns]
    yield "too few", [[step for step in turn if step] for turn in cut]
    wrong = json.loads(json.dumps(turns))
    for name in [
        (t, s, c, key)
        for t, turn in enumerate(wrong)
        for s, step in enumerate(turn)
        for c, (_, arguments) in enumerate(step)
        for key in arguments
    ][:1]:
        turn, step, place, key = name
        wrong[turn][step][place][1][key] = "not this"
    yield "wrong", wrong
    yield "none", [[] for _ in turns]


def as_it_is(answer: Any, *_: object, **__: object) -> Any:
    """Return an answer, which is read already."""
    return answer


def score(entry: dict[str, Any], truth: Any, category: str, turns: list[Turn], name: str) -> bool:
    """Return whether the package's runner accepts an answer."""
    handler = SimpleNamespace(decode_ast=as_it_is, decode_execute=as_it_is)
    entry = json.loads(json.dumps(entry))
    if "multi_turn" in category:
        steps = [[[written(*each) for each in step] for step in turn] for turn in turns]
        return bool(
            RUNNER._evaluate_single_multi_turn_entry(  # noqa: SLF001 - it is the one for an entry
                handler, entry["id"], steps, truth, entry, name, category
            )["valid"]
        )
    decoded = [{called: arguments} for step in turns[0] for called, arguments in step]
    if "relevance" in category:
        return bool(
            RUNNER._evaluate_single_relevance_entry(  # noqa: SLF001 - as above
                handler, entry["id"], decoded, entry, name, category
            )["valid"]
        )
    language = "JAVASCRIPT" if "javascript" in category else "JAVA" if "java" in category else "PYTHON"
    return bool(
        RUNNER._evaluate_single_ast_entry(  # noqa: SLF001 - as above
            handler,
            entry["id"],
            decoded,
            truth,
            entry,
            name,
            category,
            getattr(ENUMS.Language, language),
            getattr(ENUMS.ReturnFormat, language),
        )["valid"]
    )


def written(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as Python has it."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def main() -> None:
    """Write the answers."""
    each = int(sys.argv[1])
    for category in (*CATEGORIES.SINGLE_TURN_CATEGORY, *CATEGORIES.MULTI_TURN_CATEGORY):
        entries = RUNNER.load_dataset_entry(category, include_language_specific_hint=False)
        truths = [None] * len(entries)
        if "relevance" not in category:
            truths = [one["ground_truth"] for one in RUNNER.load_ground_truth_entry(category)]
        for number, (entry, truth) in list(enumerate(zip(entries, truths, strict=True)))[::each]:
            turns = answer_of(entry, truth, category)
            for kind, answer in variants(turns):
                valid = score(entry, truth, category, answer, f"{kind}{number}".replace(" ", "_"))
                line = {"task": entry["id"], "category": category, "kind": kind, "turns": answer, "valid": valid}
                sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
