"""Extensions: Python files and modules that register classes of sandboxes, run in the mesh when it starts.

An installed package declares its own by an entry point of the group `sandmesh.extensions`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument, SandmeshError
from sandmesh.sandbox.class_registry import class_registry

GROUP = "sandmesh.extensions"


def read_extensions(extensions: Sequence[str]) -> list[pb.TemplateDefinition]:
    """Return the definitions that installed packages and `extensions`, files and modules, register.

    Raises:
        InvalidArgument: One does not import, or registers nothing.
        AlreadyExists: Two register the same type.
    """
    found: dict[str, pb.TemplateDefinition] = {}
    for entry in entry_points(group=GROUP):
        found |= _definitions(f"{entry.name} = {entry.value} ({GROUP})", functools.partial(_load_entry, entry))
    for extension in extensions:
        found |= _definitions(extension, functools.partial(load_extension, extension))
    return list(found.values())


def _definitions(extension: str, load: Callable[[], str]) -> dict[str, pb.TemplateDefinition]:
    before = {definition.name for definition in class_registry().definitions()}
    module = _run(extension, load)
    found = {
        definition.name: definition
        for definition in class_registry().definitions()
        if definition.name not in before or class_registry().is_from(definition.name, module)
    }
    if not found:
        fix = "decorate a class derived from Sandbox with @SandboxRegistry.register(...)"
        raise InvalidArgument(f"the extension {extension} registers no template: {fix}", {"extension": extension})
    return found


def _load_entry(entry: EntryPoint) -> str:
    entry.load()
    return entry.module


def load_extension(extension: str) -> str:
    """Import a file, by its path, or a module, by its name, once; return the module's name."""
    path = Path(extension)
    if path.suffix != ".py" and not path.is_file():
        return importlib.import_module(extension).__name__
    name = f"sandmesh_extension_{path.stem}_{abs(hash(path.resolve())):x}"
    if name in sys.modules:
        return name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name


def _run(extension: str, load: Callable[[], str]) -> str:
    try:
        return load()
    except SandmeshError as error:
        error.message = f"the extension {extension}: {error.message}"
        raise
    except (Exception, SystemExit) as error:
        # An extension is user code, which may raise anything.
        detail = f"{type(error).__name__}: {error}"
        message = f"the extension {extension} cannot be imported: {detail}"
        raise InvalidArgument(message, {"extension": extension, "detail": detail}) from error
