"""The fields of requests that other systems' packages publish, read out of the installed packages by a program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Final

from tests.environments import environment_of

Types = dict[str, list[str]]
"""Names of fields on the wire, by the names of their types."""

PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "e2b": ("e2b==2.63.0", "e2b-code-interpreter==2.11.5"),
    "agentscope": ("agentscope-runtime==1.1.6.post2",),
    "swerex": ("swe-rex==1.4.0", "aiohttp"),
    "sandboxfusion": ("sandbox-fusion==0.3.7",),
}
"""As `door_pages` has them."""

_E2B: Final = """
import json, pathlib, re, e2b
folder, found = pathlib.Path(e2b.__file__).parent, {}
models = folder / "api" / "client" / "models"
for path in [*models.glob("*.py"), *folder.glob("volume/client/models/*body.py")]:
    text = path.read_text()
    # What only answers have is not sent.
    name = re.search(r"^class (\\w+)", text, re.M)
    if name:
        found[name[1]] = re.findall(r'd\\.pop\\("(\\w+)"', text)
for path in (folder / "api" / "client" / "api").glob("*/*.py"):
    names = re.findall(r'params\\["(\\w+)"\\]', path.read_text())
    if names:
        found[path.stem] = names
for path in folder.glob("envd/*/*_pb.py"):
    for name, fields in re.findall(r"_(\\w+)Fields: TypeAlias = (?:Literal\\[(.*?)\\]|NoReturn)", path.read_text()):
        words = re.findall(r'"(\\w+)"', fields)
        # Two messages have a part of the same name.
        found.setdefault(name, []).extend(re.sub(r"_(\\w)", lambda one: one[1].upper(), word) for word in words)
print(json.dumps(found))
"""
_AGENTSCOPE: Final = """
import ast, importlib.util, json, pathlib
folder = pathlib.Path(importlib.util.find_spec("agentscope_runtime").origin).parent
text, found = (folder / "sandbox/manager/sandbox_manager.py").read_text(), {}
for node in ast.walk(ast.parse(text)):
    remote = any("remote_wrapper" in ast.dump(one) for one in getattr(node, "decorator_list", ()))
    if remote and isinstance(node, ast.FunctionDef):
        names = [one.arg for one in [*node.args.args, *node.args.kwonlyargs]]
        found[node.name] = [name for name in names if name != "self" and not name.startswith("_")]
print(json.dumps(found))
"""
_SWEREX: Final = """
import json
from swerex.runtime import abstract
kinds = [kind for kind in vars(abstract).values() if isinstance(kind, type) and issubclass(kind, abstract.BaseModel)]
named = {one.__name__: list(one.model_fields) for one in kinds if one is not abstract.BaseModel}
print(json.dumps({name: fields for name, fields in named.items() if "Response" not in name}))
"""
_SANDBOXFUSION: Final = """
import json
from sandbox_fusion import models
kinds = {name: one for name, one in vars(models).items() if name.endswith("Request")}
print(json.dumps({name: list(one.__fields__) for name, one in kinds.items()}))
"""
_PROGRAMS: Final = {"e2b": _E2B, "agentscope": _AGENTSCOPE, "swerex": _SWEREX, "sandboxfusion": _SANDBOXFUSION}


def published(door: str) -> Types:
    """Return the fields that a door's clients may send."""
    python = environment_of(*PACKAGES[door], with_own=False)
    done = subprocess.run([str(python), "-c", _PROGRAMS[door]], check=True, capture_output=True, timeout=120)
    found: Types = json.loads(done.stdout)
    return found
