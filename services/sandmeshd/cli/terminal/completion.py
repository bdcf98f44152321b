"""Shell completion of sandbox ids and template names."""

from __future__ import annotations

SECONDS = 1.0


def complete_sandboxes(incomplete: str) -> list[tuple[str, str]]:
    """Return the ids of the mesh's sandboxes with this prefix, each with its template; none where no mesh answers."""
    # Only a shell that completes pays for these imports, not every command.
    from sandmesh import Mesh  # noqa: PLC0415
    from sandmesh.errors import SandmeshError  # noqa: PLC0415

    try:
        with Mesh(timeout=SECONDS) as mesh:
            found = mesh.sandboxes.list()
    except (SandmeshError, OSError):
        return []
    return [(one.sandbox_id, one.template) for one in found if one.sandbox_id.startswith(incomplete)]


def complete_templates(incomplete: str) -> list[str]:
    """Return the names of templates with this prefix."""
    from sandmeshd.templates import load_templates  # noqa: PLC0415

    return [name for name in sorted(load_templates()) if name.startswith(incomplete)]
