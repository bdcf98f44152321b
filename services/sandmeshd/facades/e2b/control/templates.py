"""Which of the mesh's templates stands for a template of E2B's clients."""

from __future__ import annotations

from typing import Final

TEMPLATES: Final = {
    "base": "e2b-base",
    "e2b-base": "e2b-base",
    "mcp-gateway": "e2b-base",
    "code-interpreter-v1": "code-interpreter-v1",
}
"""The mesh's templates by the names that clients use; any other name is the mesh's own."""


def mesh_template(name: str) -> str:
    """Return the name of the mesh's template; a tag behind a colon says nothing here but the newest."""
    bare = name.removesuffix(":latest").removesuffix(":default")
    return TEMPLATES.get(bare, bare)
