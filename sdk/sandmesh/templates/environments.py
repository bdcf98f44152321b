"""Training environments of a template: classes whose source is shipped, or names of installed ones.

Of a class's module only what the class uses is shipped: the imports, functions, classes and constants that it names,
and those that these name.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, Final, cast

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.environment import Environment

LONGEST: Final = 256 * 1024
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_MODULE: Final = "sandmesh_environment"


def write_environments(environments: object) -> dict[str, pb.EnvironmentDefinition]:
    """Return the definitions of environments by name.

    Raises:
        InvalidArgument: One is neither a class derived from Environment nor "module:Class", or cannot be shipped.
    """
    if environments is None:
        return {}
    if not isinstance(environments, Mapping):
        raise _invalid(f"environments must be a mapping of names to classes, not {environments!r}")
    named = cast("Mapping[object, object]", environments)
    return {_checked(name): _definition(str(name), one) for name, one in named.items()}


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "a letter, then letters in lower case, digits, _ and -, at most 63 in all"
        raise _invalid(f"an environment's name must be {rule}, not {name!r}")
    return name


def _definition(name: str, one: object) -> pb.EnvironmentDefinition:
    if isinstance(one, str) and _TARGET.fullmatch(one):
        return pb.EnvironmentDefinition(target=one)
    if isinstance(one, type) and issubclass(one, Environment):
        lacking = ", ".join(sorted(getattr(one, "__abstractmethods__", ())))
        if lacking:
            raise _invalid(f"the environment {name!r} lacks {lacking}: {one.__qualname__} must define them")
        target = f"{_MODULE}_{name.replace('-', '_')}:{one.__name__}"
        return pb.EnvironmentDefinition(target=target, source=shipped_class(one))
    raise _invalid(f'the environment {name!r} must be a class derived from Environment, or "module:Class", not {one!r}')


def shipped_class(made: type[Any]) -> str:
    """Return the source of a class with what it uses of its module.

    Raises:
        InvalidArgument: It has none, or is not at the top of its module.
    """
    name = made.__name__
    try:
        tree = ast.parse(inspect.getsource(sys.modules[made.__module__]))
    except (OSError, TypeError, KeyError, SyntaxError) as error:
        raise _invalid(f"{name} has no source that can be shipped ({error}): define it in a file") from None
    homes = {bound: node for node in tree.body for bound in _bound(node)}
    if name not in homes or made.__qualname__ != name:
        raise _invalid(f"{made.__qualname__} cannot be shipped: define it at the top of its module")
    if isinstance(homes[name], ast.ClassDef):
        cast("ast.ClassDef", homes[name]).decorator_list = []
    used = _closure(homes, name)
    wanted = {homes[each] for each in used}
    source = ast.unparse(ast.Module([_bare(node, used) for node in tree.body if node in wanted], []))
    if len(source) > LONGEST:
        raise _invalid(f"{name} and what it uses have more than {LONGEST} characters: install them as a package")
    return f"from __future__ import annotations\n{source}"


def _closure(homes: Mapping[str, ast.stmt], name: str) -> set[str]:
    """Return the names of a module that a name needs, with itself."""
    found: set[str] = set()
    queue = [name]
    while queue:
        each = queue.pop()
        if each in homes and each not in found:
            found.add(each)
            if not isinstance(homes[each], ast.Import | ast.ImportFrom):
                queue.extend(_globals(_compiled(homes[each])))
    return found


def _compiled(node: ast.stmt) -> CodeType:
    # Annotations are texts in what is shipped, and name nothing that must be there.
    flags = __future__.annotations.compiler_flag
    made: CodeType = compile(ast.Module([node], []), "<environment>", "exec", flags=flags, dont_inherit=True)
    return made


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up outside of its functions."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        if getattr(node, "module", None) != "__future__":
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Try | ast.If):
        yield from (
            each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )


def _bare(node: ast.stmt, used: set[str]) -> ast.stmt:
    if isinstance(node, ast.Import | ast.ImportFrom):
        node.names = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in used]
    return node


def _invalid(message: str) -> InvalidArgument:
    return InvalidArgument(message, {"argument": "environments"})
