"""The sizes that this code holds, measured."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "sdk" / "sandmesh" / "api"

MEDIAN_FUNCTION, P95_FUNCTION, LONGEST_FUNCTION = 8, 30, 50
LONGEST_FILE, MOST_ARGUMENTS = 400, 6
MOST_METHODS, MOST_ATTRIBUTES = 20, 12
# A file of a few lines costs its reader a hop; with room, as some are a class that others share. Markers of packages
# are not counted.
SMALL_FILE, MOST_SMALL_FILES = 60, 0.25


Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """One function of the product: where it is, its lines without its docstring, its arguments without self."""

    name: str
    lines: int
    arguments: int


def product_files() -> list[Path]:
    found = [path for folder in ("sdk", "services") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if GENERATED not in path.parents)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree: reading all of them takes longer than any test here."""
    return ast.parse(path.read_text())


def place(path: Path, node: Definition | ast.ClassDef) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def measure(path: Path, node: Definition) -> Function:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return Function(place(path, node), lines, sum(argument.arg not in {"self", "cls"} for argument in named))


def functions() -> Iterator[Function]:
    for path in product_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, Definition):
                yield measure(path, node)


def class_size(node: ast.ClassDef) -> tuple[int, int]:
    """Return a class's methods and the attributes that they assign; fields of records and settings are not counted."""
    methods = [each for each in node.body if isinstance(each, Definition) and not is_overload(each)]
    attributes = {
        each.attr
        for method in methods
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return len(methods), len(attributes)


def undocumented(path: Path, body: list[ast.stmt]) -> Iterator[str]:
    """Name the public classes and functions that say nothing of themselves; what is inside functions is nobody's."""
    for node in body:
        if not isinstance(node, Definition | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not is_overload(node):
            yield place(path, node)
        if isinstance(node, ast.ClassDef):
            yield from undocumented(path, node.body)


def is_overload(node: Definition | ast.ClassDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)


@pytest.fixture(scope="module")
def measured() -> list[Function]:
    """Every function of the product."""
    return list(functions())


def test_no_function_is_over_fifty_lines(measured: list[Function]) -> None:
    assert [f"{each.name}: {each.lines} lines" for each in measured if each.lines > LONGEST_FUNCTION] == []


def test_most_functions_are_short(measured: list[Function]) -> None:
    lines = sorted(each.lines for each in measured)
    longest = sorted(measured, key=lambda each: each.lines)[-5:]
    assert statistics.median(lines) <= MEDIAN_FUNCTION, longest
    assert lines[int(len(lines) * 0.95)] <= P95_FUNCTION, longest


def test_no_function_takes_more_than_six_arguments(measured: list[Function]) -> None:
    assert [f"{each.name}: {each.arguments}" for each in measured if each.arguments > MOST_ARGUMENTS] == []


def test_no_class_has_more_than_twenty_methods_or_twelve_attributes() -> None:
    large: list[str] = []
    for path in product_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                methods, attributes = class_size(node)
                if methods > MOST_METHODS or attributes > MOST_ATTRIBUTES:
                    large.append(f"{place(path, node)}: {methods} methods, {attributes} attributes")
    assert large == []


def test_no_file_is_over_four_hundred_lines() -> None:
    files = [*product_files(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    counted = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: lines for name, lines in counted.items() if lines > LONGEST_FILE} == {}


def test_most_files_are_worth_opening() -> None:
    files = [path for path in product_files() if path.name != "__init__.py"]
    small = [str(path.relative_to(ROOT)) for path in files if len(path.read_text().splitlines()) < SMALL_FILE]
    assert len(small) <= MOST_SMALL_FILES * len(files), small


def test_everything_public_says_what_it_is() -> None:
    missing: list[str] = []
    for path in product_files():
        module = parsed(path)
        if module.body and ast.get_docstring(module) is None:
            missing.append(str(path.relative_to(ROOT)))
        missing += undocumented(path, module.body)
    assert missing == []
