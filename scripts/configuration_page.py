"""Prints docs/configuration.md: every setting of a mesh with its type, default and meaning, and the old names.

`python scripts/configuration_page.py > docs/configuration.md`
"""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ByteSize, SecretStr
from pydantic.fields import FieldInfo

from sandmeshd.cli.config.legacy_names import ASKING_NOTHING, MEANINGS, REFUSED
from sandmeshd.mesh import MeshSettings

HEAD = """\
# Configuration

Made by `python scripts/configuration_page.py` from the settings' classes.

A setting is stated on the command line (`sandmesh up --workers 4`), in the environment (`SANDMESH_WORKERS=4`), or in a
file of such lines that `--config FILE` or `SANDMESH_CONFIG` names. The command line goes before the environment, the
environment before the file, the file before what pip, npm and the proxy's variables say on this machine, and that
before the default. `sandmesh config show` prints every value with where it came from. A name that is unknown, a value
of another type, and two settings that contradict each other stop the start; the message names the nearest setting that
there is. `sandmesh up` ends its sandboxes with itself unless it is told to keep them.

Lists and tables are JSON: `SANDMESH_LISTEN=["127.0.0.1:8570"]`, `SANDMESH_POOLS={"base": 2}`.

| variable | type | default | meaning |
| --- | --- | --- | --- |
"""

OLD = """
## Names from AgentScope Runtime

Its settings are known by their names with `SANDMESH_` before them. Those that are not in this table and not refused
(`WORKERS`, `BEARER_TOKEN`, `FILE_SYSTEM`, `STORAGE_FOLDER`, `READONLY_MOUNTS`, `PORT_RANGE`) have the same name here.

| its name | what it is here |
| --- | --- |
"""

REFUSALS = """
Known, and refused with the reason where they are stated, because they would have no effect. The value that a name had
by default asks for nothing and is taken; the mesh's log and `sandmesh config show` say so. `DEFAULT_MOUNT_DIR` is for
bubblewrap; with another driver its old default, `sessions_mount_dir`, is taken in the same way.

| its name | taken without an effect | what to do |
| --- | --- | --- |
"""


def main() -> None:
    """Print the page."""
    rows = "".join(map(row, MeshSettings.model_fields.items()))
    old = "".join(f"| `{name}` | `{setting.upper()}` |\n" for name, setting in MEANINGS.items())
    refused = "".join(f"| `{name}` | {_taken(name)} | {reason} |\n" for name, reason in REFUSED.items())
    print(HEAD + rows + OLD + old + REFUSALS + refused, end="")


def _taken(name: str) -> str:
    return f"`{ASKING_NOTHING[name]}`" if name in ASKING_NOTHING else "nothing stated"


def row(named: tuple[str, FieldInfo]) -> str:
    """Give a setting's line."""
    name, field = named
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `SANDMESH_{name.upper()}` | {kind(field.annotation)} | {default(field)} | {meaning} |\n"


def default(field: FieldInfo) -> str:
    """Give a default as it would be written."""
    if field.default_factory is not None:
        return "by the user" if "directory" in getattr(field.default_factory, "__name__", "") else "none"
    value: Any = field.default
    if isinstance(value, ByteSize):
        return f"`{value.human_readable()}`"
    if isinstance(value, tuple):
        return f"`{json.dumps(value)}`" if value else "none"
    return (
        "none"
        if value is None or value == ""
        else f"`{value}`".replace("`True`", "`true`").replace("`False`", "`false`")
    )


NAMES = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true, false",
    Path: "path",
    SecretStr: "secret",
    ByteSize: "size",
}


def kind(annotation: Any) -> str:
    """Say of what type a setting is."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return next(kind(part) for part in get_args(annotation) if part is not type(None))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation) if value != "")
    if origin in (tuple, dict):
        return "list" if origin is tuple else "table"
    return NAMES.get(annotation, "number")


if __name__ == "__main__":
    main()
