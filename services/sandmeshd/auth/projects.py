"""Which project users and sandboxes belong to, for the principals who administer one."""

from __future__ import annotations

from collections.abc import Sequence

from sandmesh.errors import PermissionDenied
from sandmeshd.auth.principal import current_principal
from sandmeshd.store import Store


class Projects:
    """The projects of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, users: Sequence[str], sandboxes: Sequence[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
        """Return the projects of users, and those that sandboxes count in or did; empty where nothing is known."""
        arguments = {"users": list(users), "sandboxes": list(sandboxes)}
        of_users, of_sandboxes = await self._store.run("projects_of", arguments)
        return _by_name(users, of_users), _by_name(sandboxes, of_sandboxes)

    async def check_user(self, user_id: str) -> None:
        """Check that a principal who administers a project names one of its users; others are not checked here.

        Raises:
            PermissionDenied: The user belongs to another project, or none is named.
        """
        project = current_principal().project
        if not project:
            return
        if not user_id:
            message = f"the token is for the project {project}: name one of its users (user_id)"
            raise PermissionDenied(message, {"field": "user_id"})
        if (await self.find([user_id]))[0][user_id] != project:
            message = f"the token is for the project {project}, which {user_id!r} does not belong to"
            raise PermissionDenied(message, {"field": "user_id"})


def _by_name(names: Sequence[str], projects: Sequence[bytes]) -> dict[str, str]:
    return {name: project.decode() for name, project in zip(names, projects, strict=True)}
