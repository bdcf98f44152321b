"""AppWorld: tasks in a simulated world of apps, which an agent solves by writing code that calls the apps' APIs.

The package is installed as it is on PyPI. Its apps' code, which it ships packed and asks not to publish, is unpacked
where only this sandbox sees it; its data is the administrator's, mounted at `DATA`. See https://appworld.dev.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from sandmesh.shared.environment import Environment, EnvironmentRefusal, Params

DATA: Final = Path("/opt/data")
_FENCED: Final = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_FORM: Final = (
    "An action is an assistant's message, {'role': 'assistant', 'content': code}, its code in ```python fences."
)
_PROMPT: Final = """\
{instruction}

You act for {first_name} {last_name} ({email}, {phone_number}). Write Python code that calls APIs as
`apis.app.api(argument=value)`; what it prints is the answer, and variables stay.
`apis.api_docs.show_app_descriptions()`, `apis.api_docs.show_api_descriptions(app_name=...)` and
`apis.api_docs.show_api_doc(app_name=..., api_name=...)` tell what there is,
`apis.supervisor.show_account_passwords()` how to log in. The task ends with `apis.supervisor.complete_task()`, with
`answer=` where it asks for one."""


def _load() -> Any:
    """Import the package, its apps among the rest, so that instances share what that takes."""
    home = tempfile.mkdtemp(prefix="appworld-")
    os.environ.update(APPWORLD_ROOT=home, APPWORLD_CACHE=f"{home}/cache")
    Path(home, "data").symlink_to(DATA)
    constants: Any = import_module("appworld.common.constants")
    source = Path(str(import_module("appworld").__file__)).parent / ".source" / "apps.bundle"
    unpack: Any = import_module("appworld.common.utils").unpack_bundle
    unpack(str(source), home, constants.PASSWORD, constants.SALT)
    apps: Any = import_module("appworld.apps")
    apps.__path__.append(f"{home}/apps")
    names: list[str] = apps.get_all_apps(skip_admin=True)
    import_module("appworld.collections.api_docs").ApiDocCollection.load(tuple(names), True)
    for name in apps.get_all_apps():
        import_module(f"appworld.apps.{name}.apis")
    return import_module("appworld")


_PACKAGE: Any = _load()
_VERSION: Final[str] = import_module("appworld.common.constants").DB_VERSION


@cache
def _tasks(split: str) -> list[str]:
    return (DATA / "datasets" / f"{split}.txt").read_text().split()


class AppWorldEnvironment(Environment):
    """A task; an action is a message of an assistant with code, and the reward of the last one is the score."""

    splits: ClassVar[Sequence[str]] = tuple(sorted(path.stem for path in (DATA / "datasets").glob("*.txt")))

    @classmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return the tasks of a set of the data; `params["difficulty"]` is 1, 2 or 3."""
        difficulty = params.get("difficulty")
        if difficulty is None:
            return _tasks(split)
        return [task for task in _tasks(split) if _truth(task).get("difficulty") == difficulty]

    def __init__(self, task_id: str, params: Params) -> None:
        """Load the task; `params` are `max_interactions` and `timeout_seconds` of the package's `AppWorld`."""
        if task_id not in {task for split in self.splits for task in _tasks(split)}:
            raise EnvironmentRefusal(f"There is no task {task_id!r}: get_task_ids lists those of a split.")
        found = json.loads((DATA / "tasks" / task_id / "specs.json").read_text()).get("db_version")
        if found != _VERSION:
            raise EnvironmentRefusal(f"The task {task_id!r} is of version {found} of the data, not {_VERSION}.")
        taken = {name: params[name] for name in ("max_interactions", "timeout_seconds") if name in params}
        self._id = task_id
        truth = _truth(task_id)
        self._world: Any = _PACKAGE.AppWorld(task_id, load_ground_truth=bool(truth), **taken)

    def reset(self) -> Mapping[str, Any]:
        """Return the instruction, and whose it is."""
        task = self._world.task
        content = _PROMPT.format(instruction=task.instruction, **task.supervisor)
        about = {"instruction": task.instruction, "supervisor": dict(task.supervisor), "datetime": str(task.datetime)}
        return {"state": [{"role": "user", "content": content}], "info": about}

    def step(self, action: Any, params: Params) -> Mapping[str, Any]:
        """Run the code of a message; the episode ends with the task."""
        del params
        output = str(self._world.execute(_code(action)))
        over = bool(self._world.task_completed())
        reward = self._score()["accuracy"] if over and self._world.task.ground_truth else 0.0
        return {"state": [{"role": "user", "content": output}], "reward": reward, "is_terminated": over, "info": {}}

    def evaluate(self, messages: Any, params: Params) -> Any:
        """Return what the package's tests find: with `sparse` 1.0 where all passed, else a mapping with `accuracy`."""
        del messages
        if not self._world.task.ground_truth:
            raise EnvironmentRefusal(f"The data has no ground truth of {self._id!r}, so that it has no score.")
        found = self._score()
        return float(found["success"]) if params.get("sparse") else found

    def close(self) -> None:
        """Close the world."""
        self._world.close()

    def _score(self) -> dict[str, Any]:
        tests = self._world.evaluate()
        return {
            "test_id": self._id,
            "completed": bool(self._world.task_completed()),
            "success": bool(tests.success),
            "accuracy": tests.pass_count / tests.num_tests if tests.num_tests else 0.0,
            "passes": [passed["requirement"] for passed in tests.passes],
            "failures": [failure["requirement"] for failure in tests.failures],
        }


def _truth(task_id: str) -> dict[str, Any]:
    """Return what the data says of a task's solution; nothing for tasks that have none."""
    path = DATA / "tasks" / task_id / "ground_truth" / "metadata.json"
    return cast("dict[str, Any]", json.loads(path.read_text())) if path.exists() else {}


def _code(action: Any) -> str:
    content: Any = cast("dict[str, Any]", action).get("content") if isinstance(action, dict) else None
    if not isinstance(content, str) or not content.strip():
        raise EnvironmentRefusal(_FORM)
    fenced = _FENCED.findall(content)
    return "\n".join(fenced) if fenced else content
