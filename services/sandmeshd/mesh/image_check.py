"""Tests an image with sandboxes of it, by the requirements of the conformance suite that an image can break."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping

from sandmesh.errors import SandmeshError, TemplateBuildFailed
from sandmeshd.drivers.conformance import OF_IMAGES, Boundary, Requirement, Subject
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.mesh.driver import open_driver
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.mesh.sweep import PREFIX, remove
from sandmeshd.runtime.locks import held
from sandmeshd.templates import Template


async def check_image(settings: MeshSettings, templates: Mapping[str, Template], name: str) -> AsyncIterator[BuildStep]:
    """Start sandboxes of a template whose image is built, on a separate mesh, and yield each test.

    Raises:
        TemplateBuildFailed: A test failed; `facts["detail"]` is what was observed.
    """
    own = settings.model_copy(update={"mesh_id": f"{PREFIX}{secrets.token_hex(6)}"})
    subject = Subject(
        open=lambda: open_driver(own, templates, stands_by=False),
        mesh_id=own.mesh_id,
        template=name,
        unprepared=None,
        leftovers=set,
        boundary=Boundary(writable_mounts=frozenset(), processes=lambda _: []),
    )
    own.paths.make()
    try:
        async with held(own.paths.lock):
            for number, requirement in enumerate(OF_IMAGES):
                yield BuildStep(f"testing that {_sentence(requirement)}", number / len(OF_IMAGES))
                await _check(requirement, subject, templates[name].image or name)
    finally:
        remove(own.paths)


async def _check(requirement: Requirement, subject: Subject, image: str) -> None:
    try:
        await requirement(subject)
    except (AssertionError, SandmeshError) as error:
        fix = "correct its Dockerfile, and build it again"
        message = f"the image {image} was built, but fails the test that {_sentence(requirement)}"
        raise TemplateBuildFailed(f"{message}: {error}; {fix}", {"detail": str(error), "fix": fix}) from error


def _sentence(requirement: Requirement) -> str:
    return requirement.__name__.replace("_", " ")
