"""Measure who imports whom between the rooms of each package, and refuse what the house does not allow.

A room is a direct child of a package: a folder or a module. An arrow says that one room imports another, anywhere:
at load time, inside a function, or by a module's name in a string, which is how `import_module` is called. An arrow
points upward where it goes against the layers in pyproject.toml or lies on a circle. Floors are the longest chain.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = (ROOT / "sdk" / "sandmesh", ROOT / "services" / "sandmeshd")
GENERATED: Final = "sandmesh.api"
MOST_MODULES: Final = 16
COLUMNS: Final = ("rooms", "floors", "arrows", "upward", "circles")
# A dot at the end: the beginning of an f-string whose rest is known only when it runs.
MODULE_NAME: Final = re.compile(r"sandmeshd?(\.\w+)+\.?")
DRIVERS: Final = "sandmeshd.drivers"
# What drivers share, and the suite that tests all of them; every other folder there is a driver's package.
SHARED_BY_DRIVERS: Final = {"api", "conformance", "decorators", "egress", "node", "snapshots"}


@dataclass(frozen=True)
class Limits:
    """The most that a package may have; None is no limit."""

    rooms: int | None = None
    floors: int | None = None
    arrows: int | None = None


PACKAGES: Final[Mapping[str, Limits]] = {
    # 16, 9, 55, and two rooms: the adapters of other frameworks above all, and what replies to models are cut by, which
    # toolkits, boxes and adapters use.
    "sandmesh": Limits(18, 10, 70),
    "sandmeshd": Limits(),
    "sandmeshd.agent": Limits(13, 11, 50),
    "sandmeshd.allocator": Limits(),
    "sandmeshd.cli": Limits(),
    # 10, 5, 22, and two rooms beside kubernetes that import the same four: what clouds rent, and BoxLite's boxes.
    "sandmeshd.drivers": Limits(12, 5, 30),
    "sandmeshd.gateway": Limits(),
    "sandmeshd.mesh": Limits(),
}

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Return the handwritten modules and packages of the product by dotted name."""
    found: dict[str, Path] = {}
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if name != GENERATED and not name.startswith(f"{GENERATED}."):
                found[name] = path
    return found


def nearest(name: str, known: Mapping[str, Path]) -> str | None:
    """Return the module that `name` names or is a part of; None for one of another distribution."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever in it; a program that it starts is not imported."""
    started = started_programs(tree)
    for node in ast.walk(tree):
        if node in started:
            continue
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = package.rsplit(".", node.level - 1)[0] if node.level else ""
                origin = ".".join(part for part in (base, node.module) if part)
                yield from (f"{origin}.{alias.name}" for alias in node.names)
            case ast.Constant(value=str(text)) if MODULE_NAME.fullmatch(text):
                yield text.rstrip(".")
            case _:
                pass


def started_programs(tree: ast.AST) -> set[ast.AST]:
    """Return the elements that follow `-m` in the lists of a module: names of programs in commands."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            pairs = pairwise(node.elts)
            found |= {after for before, after in pairs if isinstance(before, ast.Constant) and before.value == "-m"}
    return found


def module_imports(known: Mapping[str, Path]) -> Graph:
    """Return the modules that each module imports; names that a package re-exports count for where they come from."""
    trees = {name: ast.parse(path.read_text()) for name, path in known.items()}
    exports = {name: dict(re_exports(trees[name], name)) for name, path in known.items() if path.stem == "__init__"}
    graph: Graph = {name: set() for name in known}
    for name, tree in trees.items():
        package = name if known[name].stem == "__init__" else name.rpartition(".")[0]
        for imported in imported_names(tree, package):
            origin, _, attribute = imported.rpartition(".")
            target = nearest(exports.get(origin, {}).get(attribute, imported), known)
            if target and target != name:
                graph[name].add(target)
    return graph


def re_exports(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a package's `__init__` takes from elsewhere, and where each comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origin = ".".join(part for part in (package if node.level else "", node.module) if part)
            yield from ((alias.asname or alias.name, f"{origin}.{alias.name}") for alias in node.names)


def room(module: str, package: str) -> str | None:
    """Return the room of `package` that a module is in; None for the package's own `__init__` and what is outside."""
    return module[len(package) + 1 :].partition(".")[0] if module.startswith(f"{package}.") else None


def room_graph(package: str, known: Mapping[str, Path], imports: Graph) -> Graph:
    """Return the rooms that each room of a package imports."""
    graph: Graph = {name: set() for module in known if (name := room(module, package))}
    for module, targets in imports.items():
        source = room(module, package)
        if source:
            graph[source] |= {name for target in targets if (name := room(target, package))} - {source}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the rooms that `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(graph[name])
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of rooms that import each other."""
    reach = {name: reachable(graph, name) for name in graph}
    groups = {tuple(sorted({name} | {other for other in reach[name] if name in reach[other]})) for name in graph}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def floors(graph: Graph) -> int:
    """Return the length of the longest chain of imports; the rooms of a circle share a floor."""
    reach = {name: reachable(graph, name) for name in graph}
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            below = [other for other in graph[name] if name not in reach[other]]
            heights[name] = 1 + max((height(other) for other in below), default=0)
        return heights[name]

    return max(map(height, graph), default=0)


def layers(package: str, contracts: list[dict[str, Any]]) -> dict[str, int]:
    """Return each room's layer, 0 for the top, as the import-linter contract of the package has them."""
    for contract in contracts:
        if contract["type"] == "layers" and package in contract.get("containers", []):
            return {
                name.strip("() "): depth
                for depth, layer in enumerate(contract["layers"])
                for name in re.split(r"[|:]", layer)
            }
    return {}


def upward(graph: Graph, depths: Mapping[str, int]) -> list[str]:
    """Return the arrows that go against the layers or lie on a circle."""
    reach = {name: reachable(graph, name) for name in graph}
    found: list[str] = []
    for source, targets in sorted(graph.items()):
        for target in sorted(targets):
            against = source in depths and target in depths and depths[source] >= depths[target]
            if against or source in reach[target]:
                found.append(f"{source} -> {target}")
    return found


def folder_sizes(known: Mapping[str, Path]) -> Iterator[str]:
    """Yield a problem for each folder that has too many modules."""
    counted = Counter(path.parent for path in known.values() if path.stem != "__init__")
    for folder, count in sorted(counted.items()):
        if count > MOST_MODULES:
            yield f"{folder.relative_to(ROOT)} has {count} modules, at most {MOST_MODULES} are allowed"


def driver_imports(imports: Graph) -> Iterator[str]:
    """Yield a problem for each import of one driver's package by another."""
    for module, targets in sorted(imports.items()):
        own = room(module, DRIVERS)
        for target in sorted(targets):
            other = room(target, DRIVERS)
            if own and other and other != own and not {own, other} & SHARED_BY_DRIVERS:
                yield f"{module} imports {target} of another driver"


def row(name: str, cells: Sequence[object]) -> str:
    """Return a line of the table."""
    return f"{name:<22}" + "".join(f"{cell!s:>8}" for cell in cells)


def measure(package: str, graph: Graph, contracts: list[dict[str, Any]]) -> Iterator[str]:
    """Print the line of a package and yield its problems."""
    limits, depths = PACKAGES[package], layers(package, contracts)
    against, rings = upward(graph, depths), circles(graph)
    figures = (len(graph), floors(graph), sum(map(len, graph.values())), len(against), len(rings))
    print(row(package, figures))
    for what, figure, limit in zip(COLUMNS, figures, (limits.rooms, limits.floors, limits.arrows), strict=False):
        if limit is not None and figure > limit:
            yield f"{package} has {figure} {what}, at most {limit} are allowed"
    yield from (f"{package}: no layer holds {name}" for name in sorted(graph.keys() - depths.keys()))
    yield from (f"{package}: upward arrow {arrow}" for arrow in against)
    yield from (f"{package}: circle of {', '.join(ring)}" for ring in rings)


def main() -> None:
    """Print the figures of the packages, or the arrows of those that are named; end with 1 when there are problems."""
    known = modules()
    imports = module_imports(known)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    problems = [*folder_sizes(known), *driver_imports(imports)]
    print(row("package", COLUMNS))
    for package in PACKAGES:
        graph = room_graph(package, known, imports)
        problems += measure(package, graph, contracts)
        if package in sys.argv[1:]:
            for source, targets in sorted(graph.items()):
                print(f"  {source} -> {', '.join(sorted(targets)) or 'nothing'}")
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
