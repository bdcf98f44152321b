"""The words of the code are the field's: names of modules, identifiers and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "sdk" / "sandmesh" / "api"

# Nouns of the field that end as gerunds do.
NOUNS = {
    "forwarding": "handing a call on to another object of the same interface is called forwarding",
    "framing": "what cuts a stream of bytes into messages is called framing",
    "routing": "routes of an address family are set up by what is called routing",
    "logging": "the standard library's name for what it is",
    "training": "the field's word for what episodes are for",
}
# Docstrings begin with a verb that says what is done: Return, Raise, Write; not with one that fits everything.
VAGUE_VERBS = {"Give", "Say", "Tell", "Let", "Have", "Be", "Do"}
MOST_VAGUE_DOCSTRINGS = 0.01
# Participles that name how a value came, where a name should say what the value is.
PARTICIPLES = {"told", "stated", "asked", "given"}
# With room for names of libraries, such as hypothesis' `given`.
MOST_PARTICIPLES = {"product": 20, "tests": 80}
FOLDERS = {"product": ("sdk", "services"), "tests": ("tests",)}

# Turns of phrase that a reader of today's English stumbles over, or that mean two things; pages say what is meant.
PHRASES = {
    "is not a": re.compile(r"(?<!there )(?<!here )\bis no (?!longer\b|more\b|separate\b)[a-z]", re.IGNORECASE),
    "again": re.compile(r"\banew\b", re.IGNORECASE),
    "anyone, no user, unused": re.compile(r"\b(?:whoever|nobody|to whom)\b", re.IGNORECASE),
    "its own, a separate": re.compile(r"\bof (?:its|their|one's) own\b", re.IGNORECASE),
    "immediately, or simultaneously": re.compile(r"\bat once\b", re.IGNORECASE),
    "recently": re.compile(r"\blately\b", re.IGNORECASE),
    "only": re.compile(r"\balone\b", re.IGNORECASE),
}
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PAGES = ("README.md", "docs/*.md", "protos/**/*.proto")
# Whose docstrings and messages are held to them too.
PLAIN_ROOMS = ("sdk", "services")

# Names that several classes have by convention; any other name is one class's.
KINDS = ("", "Base", "Browser", "Filesystem", "Gui", "Mobile")
SHARED_CLASS_NAMES = {
    **dict.fromkeys(
        ("SandboxService", *(f"{kind}Sandbox{form}" for kind in KINDS for form in ("", "Async"))),
        "the compat package has the public names of the system whose programs it runs",
    ),
    "SandmeshEnvironment": "each framework's adapter is called what it is in the framework: an environment",
    "Mesh": "a mesh that runs, and its client",
    **dict.fromkeys(("Plan", "Planner", "Starter"), "a part that several drivers have"),
}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_files(part: str) -> list[Path]:
    found = (path for folder in FOLDERS[part] for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if GENERATED not in path.parents)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree: reading all of them takes longer than any test here."""
    return ast.parse(path.read_text())


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield each use of a name; tests' own names are sentences and may have any word."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("test_"):
                yield name
            case _:
                pass


def participles(tree: ast.AST) -> list[str]:
    return [name for name in identifiers(tree) if not PARTICIPLES.isdisjoint(name.lower().split("_"))]


def first_words(tree: ast.AST) -> list[str]:
    """Return the first word of each docstring."""
    documented = (node for node in ast.walk(tree) if isinstance(node, Documented))
    texts = (ast.get_docstring(node) for node in documented)
    return [text.split()[0] for text in texts if text]


def test_no_module_is_named_by_a_gerund() -> None:
    modules = {path.parent if path.stem == "__init__" else path for path in python_files("product")}
    gerunds = [str(path.relative_to(ROOT)) for path in modules if path.stem.endswith("ing") and path.stem not in NOUNS]
    assert sorted(gerunds) == []


def test_docstrings_begin_with_a_verb_that_says_what_is_done() -> None:
    words = [word for path in python_files("product") for word in first_words(parsed(path))]
    vague = sum(word in VAGUE_VERBS for word in words)
    assert vague <= MOST_VAGUE_DOCSTRINGS * len(words), f"{vague} of {len(words)} docstrings"


@pytest.mark.parametrize("part", MOST_PARTICIPLES)
def test_names_say_what_a_value_is_and_not_how_it_came(part: str) -> None:
    found = {str(path.relative_to(ROOT)): names for path in python_files(part) if (names := participles(parsed(path)))}
    assert sum(map(len, found.values())) <= MOST_PARTICIPLES[part], found


def test_a_class_name_is_one_class() -> None:
    found: dict[str, list[str]] = {}
    for path in python_files("product"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    shared = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED_CLASS_NAMES} == {}
    assert len(SHARED_CLASS_NAMES) <= 20
    assert shared.keys() == SHARED_CLASS_NAMES.keys()


def phrases(text: str) -> list[str]:
    """Return what a text has of these turns of phrase outside of code."""
    prose = CODE.sub("", text)
    return [match[0] for pattern in PHRASES.values() for match in pattern.finditer(prose)]


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield docstrings, messages and the like: what is one word is a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def test_pages_say_what_they_mean() -> None:
    pages = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    found = {str(path.relative_to(ROOT)): phrases(path.read_text()) for path in pages}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("room", PLAIN_ROOMS)
def test_docstrings_and_messages_say_what_they_mean(room: str) -> None:
    files = (path for path in (ROOT / room).rglob("*.py") if GENERATED not in path.parents)
    found = {
        str(path.relative_to(ROOT)): words
        for path in sorted(files)
        if (words := [word for text in texts(parsed(path)) for word in phrases(text)])
    }
    assert found == {}


def test_turns_of_phrase_are_found() -> None:
    text = (
        "It is no setting. There is no other, it is no longer alone. Whoever starts anew, of its own, at once. `nobody`"
    )
    assert phrases(text) == ["is no s", "anew", "Whoever", "of its own", "at once", "alone"]


def test_the_words_are_found() -> None:
    source = 'def f(given, *, x):\n    """Give it."""\n    self._asked_for = told(stated=1, bedded=2)\n'
    tree = ast.parse(source)
    assert sorted(participles(tree)) == ["_asked_for", "given", "stated", "told"]
    assert first_words(tree) == ["Give"]


@pytest.mark.parametrize("folder", ["sdk", "services", "tests", "scripts", "benchmarks", "examples"])
def test_what_a_comprehension_picks_is_called_what_it_is(folder: str) -> None:
    pattern = re.compile(r"\bone (?:async )?for one in\b")
    texts_of = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__)}
    assert [str(path.relative_to(ROOT)) for path, text in texts_of.items() if pattern.search(text)] == []
