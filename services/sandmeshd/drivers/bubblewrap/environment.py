"""The build of a template's Python environment for sandboxes that share this machine's root."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from sandmeshd.drivers.bubblewrap.arguments import FONT_CACHE, SharedView, warm_up_arguments
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.environments import PythonEnvironments, run_step
from sandmeshd.drivers.node.readability import open_to_all


class EnvironmentBuilder(PythonEnvironments):
    """Builds the environments of one driver's templates, with caches for the homes of its sandboxes."""

    flavor: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: BubblewrapSettings, view: SharedView) -> None:
        super().__init__(settings.paths.cache, view.interpreter)
        self._settings = settings
        self._view = view

    async def _warm_up(self, fresh: Path, statement: str) -> None:
        await super()._warm_up(fresh, statement)
        if not statement:
            return
        home = fresh / "home"
        if os.geteuid() == 0:
            os.chown(home, self._settings.host_uid, self._settings.host_gid)
        await run_step(warm_up_arguments(self._view, fresh, home, statement))
        await asyncio.to_thread(_take_ownership, home)


def _take_ownership(home: Path) -> None:
    for root, folders, names in os.walk(home):
        for name in (".", *folders, *names):
            os.chown(Path(root, name), os.geteuid(), os.getegid(), follow_symlinks=False)
    open_to_all(home)


def home_files(environment: Path) -> tuple[str, ...]:
    """Return the files that the warm-up left in its home, relative to it, besides those that are mounted elsewhere."""
    home, fonts = environment / "home", environment / FONT_CACHE
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    return tuple(sorted(str(path.relative_to(home)) for path in files if path.parent != fonts))
