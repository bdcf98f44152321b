"""The examples in the reference of E2B's package for Python, out of the installed files."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from pathlib import Path
from typing import Final

FILES: Final = ("sandbox_sync/main.py", "sandbox_sync/paginator.py", "template_sync/main.py")
KNOWN: Final = frozenset({"Sandbox", "Template", *dir(builtins)})
"""What examples use without an import of their own."""

RUN: Final = """
import sys
from pathlib import Path
from e2b import Sandbox, Template
# The template that the examples of tags are about.
Template.build(Template().from_base_image().run_cmd("true"), "my-template:v1.0")
for file in sys.argv[1:]:
    exec(compile(Path(file).read_text(), file, "exec"), {"Sandbox": Sandbox, "Template": Template})
print("every call answered")
"""
_BLOCK: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples(library: Path) -> list[str]:
    """Return the examples that are whole programs, but for those of images, which a mesh does not pull for clients."""
    found: list[str] = []
    for name in FILES:
        for node in ast.walk(ast.parse((library / "e2b" / name).read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                blocks = _BLOCK.findall(ast.get_docstring(node, clean=False) or "")
                found += [program for block in blocks if _is_whole(program := textwrap.dedent(block))]
    return list(dict.fromkeys(found))


def _is_whole(program: str) -> bool:
    names = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    return used <= made | KNOWN and "_image(" not in program
