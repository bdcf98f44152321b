"""A small world in the form of AppWorld's data: one person, one note, one task. Run with the package's own Python.

Usage: python appworld_world.py DIRECTORY. It becomes what `appworld download data` would make, its folder `data`.
"""

import json
import os
import sys
import tempfile
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

TASK = "abc1234_1"
QUESTION = "How many apples are on my shopping list?"
EVALUATION = """
def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("the answer is that of the note"):
        test.answer(models.end.supervisor.Task.first().answer, ground_truth_answer)
    with test("the note was pinned"):
        test.case(models.end.simple_note.Note.first().pinned, "==", True)
    return test
"""


def unpack() -> Any:
    """Unpack the apps' code, and return the package's apps."""
    home = tempfile.mkdtemp()
    constants: Any = import_module("appworld.common.constants")
    package = Path(str(import_module("appworld").__file__)).parent
    utils: Any = import_module("appworld.common.utils")
    utils.unpack_bundle(str(package / ".source" / "apps.bundle"), home, constants.PASSWORD, constants.SALT)
    apps: Any = import_module("appworld.apps")
    apps.__path__.append(f"{home}/apps")
    return apps


def fill(models: Any) -> dict[str, str]:
    """Write the person, the task and the note; return the person."""
    who = {"first_name": "Ada", "last_name": "Byron", "email": "ada@example.com", "phone_number": "5550100"}
    about = {**who, "birthday": "1990-12-10", "sex": "female"}
    models.admin.MainUser.create_save(**about)
    supervisor = models.supervisor.Supervisor.create_save(**about)
    account = {"account_name": "simple_note", "password": "secret-1"}
    models.supervisor.AccountPassword.create_save(supervisor_id=supervisor.id, **account)
    models.supervisor.Task.create_save(supervisor_id=supervisor.id, instruction=QUESTION)
    own = {name: who[name] for name in ("first_name", "last_name", "email")}
    user = models.simple_note.User.create_save(**own, password=account["password"], verified=True)
    models.simple_note.Note.create_save(user_id=user.id, title="Shopping", content="7 apples", pinned=False)
    return who


def write(path: Path, value: Any) -> None:
    """Write JSON to a file below folders that may not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def main(root: Path) -> None:
    """Write the world."""
    os.environ["APPWORLD_ROOT"] = str(root)
    apps = unpack()
    task, when = root / "data" / "tasks" / TASK, datetime(2023, 5, 18, 12)  # noqa: DTZ001 - as the package has it
    (task / "dbs").mkdir(parents=True)
    utils: Any = import_module("appworld.common.utils")
    collection: Any = import_module("appworld.collections.models")
    with utils.freeze_time(when):
        load = collection.ModelCollection.load
        who = fill(load(from_db_home_path=str(task / "dbs"), load_apps=apps.get_all_apps(), create_db=True))
    version = import_module("appworld.common.constants").DB_VERSION
    specs = {"instruction": QUESTION, "supervisor": who, "datetime": when.isoformat(), "db_version": version}
    write(task / "specs.json", specs)
    counts = {"num_apps": 1, "num_apis": 4, "num_api_calls": 4, "num_solution_code_lines": 5}
    tests = ("the answer is that of the note", "the note was pinned")
    truth: dict[str, Any] = {
        "metadata": {"difficulty": 1, "mode": "minimal", **counts},
        "public_data": {},
        "private_data": {},
        "answer": 7,
        "test_data": [{"requirement": test, "label": "no_op_fail"} for test in tests],
    }
    for name, value in truth.items():
        write(task / "ground_truth" / f"{name}.json", value)
    (task / "ground_truth" / "evaluation.py").write_text(EVALUATION)
    for split, tasks in {"train": [TASK], "dev": []}.items():
        place = root / "data" / "datasets" / f"{split}.txt"
        place.parent.mkdir(exist_ok=True)
        place.write_text("\n".join(tasks))
    api_docs: Any = import_module("appworld.api_docs")
    for app in apps.get_all_apps(skip_admin=True):
        # Those that the task needs: all of them take seconds.
        wanted = app in ("supervisor", "simple_note", "api_docs")
        docs: list[dict[str, Any]] = api_docs.prepare_api_docs(app, include_private_apis=False) if wanted else []
        described = {doc["api_name"]: {**doc, "canary_string": ""} for doc in docs}
        write(root / "data" / "api_docs" / "standard" / f"{app}.json", described)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
