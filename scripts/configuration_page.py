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

from sandmeshd.cli.config.legacy_names import IGNORED, MEANINGS, OLD_DEFAULTS, REFUSED
from sandmeshd.mesh.settings import all_variables
from sandmeshd.runtime.settings import Variable

HEAD = """\
# Configuration

Made by `python scripts/configuration_page.py` from the settings' classes.

A setting is set on the command line (`sandmesh up --workers 4`), in the environment (`SANDMESH_WORKERS=4`), or in a
file of such lines that `--config FILE` or `SANDMESH_CONFIG` names. The command line takes precedence over the
environment, the environment over the file, the file over the configuration of pip, npm and the proxy on this machine,
and that over the default. `sandmesh config show` prints every value with its source. An unknown name in the file, a
value of another type, and two settings that contradict each other stop the start; the message names the nearest setting
that exists. An unknown variable in the environment is a warning with the nearest name, since others write there too:
Kubernetes sets `SANDMESH_SERVICE_HOST` beside a Service called `sandmesh`. `sandmesh up` ends its sandboxes when it
ends, unless `--keep` is set.

Where no file is named, `sandmesh up`, `down`, `doctor` and `config show` read a `.env` in the working directory, and
`up` logs that. It counts if it has settings with `SANDMESH_`, of which only these are taken, or names that only
AgentScope Runtime has; a `.env` of another program, which may have a `HOST` and a `PORT` too, is ignored.

The mesh's own settings come first, then those of its drivers. A driver from another package has its own settings
([drivers](drivers.md)), which `sandmesh config show` lists too.

Lists and tables are JSON: `SANDMESH_LISTEN=["127.0.0.1:8570"]`, `SANDMESH_POOLS={"base": 2}`.

| variable | type | default | meaning |
| --- | --- | --- | --- |
"""

OLD = """
## Names from AgentScope Runtime

Its settings are known by their names: in a file as they are, which the log says once, or with `SANDMESH_` before them;
in the environment with it. Those that are not in these tables (`WORKERS`, `BEARER_TOKEN`, `FILE_SYSTEM`,
`STORAGE_FOLDER`, `READONLY_MOUNTS`, `PORT_RANGE`) have the same name here. `MAX_SANDBOX_INSTANCES=0` means unlimited
(100,000, the most that a mesh can be set to); `HEARTBEAT_SCAN_INTERVAL=0` means that no sandbox ends for being idle.
`HOST=0.0.0.0` needs a certificate, which `sandmesh certificate` makes for trials, or `SANDMESH_ALLOW_INSECURE=true`.

| its name | what it is here |
| --- | --- |
"""

REFUSALS = """
Known, and refused with the reason where they are set, because they would have no effect. The value that a name had by
default is accepted; the mesh's log and `sandmesh config show` say so. `DEFAULT_MOUNT_DIR` is for bubblewrap; with
another driver its old default, `sessions_mount_dir`, is accepted in the same way.

| its name | accepted without an effect | what to do |
| --- | --- | --- |
"""

IGNORED_NAMES = """
Settings of a driver or store that is not chosen are ignored; the log and `sandmesh config show` list them. So are
`OSS_...` where `FILE_SYSTEM` is not `oss`, and `REDIS_...` where `REDIS_ENABLED` is false.

| its name | why it is ignored |
| --- | --- |
"""


def main() -> None:
    """Print the page."""
    rows = "".join(map(row, all_variables().values()))
    old = "".join(f"| `{name}` | `{setting.upper()}` |\n" for name, setting in MEANINGS.items())
    refused = "".join(f"| `{name}` | {_taken(name)} | {reason} |\n" for name, reason in REFUSED.items())
    ignored = "".join(
        f"| `{prefix}{'...' if prefix.endswith('_') else ''}` | {why} |\n" for prefix, why in IGNORED.items()
    )
    print(HEAD + rows + OLD + old + REFUSALS + refused + IGNORED_NAMES + ignored, end="")


def _taken(name: str) -> str:
    return f"`{OLD_DEFAULTS[name]}`" if name in OLD_DEFAULTS else "empty"


def row(variable: Variable) -> str:
    """Return a setting's line."""
    field = variable.field
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{variable.name}` | {kind(field.annotation)} | {default(field)} | {meaning} |\n"


def default(field: FieldInfo) -> str:
    """Return a default as it would be written."""
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
    """Return the name of a setting's type."""
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
