"""Tries what was built: sandboxes of an image meet the part of the conformance suite that an image can spoil."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping

from sandmesh.errors import SandmeshError, TemplateBuildFailed
from sandmeshd.drivers.conformance import OF_IMAGES, Boundary, Requirement, Subject
from sandmeshd.drivers.engine.images.build import Step
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import open_driver
from sandmeshd.mesh.sweep import PREFIX, remove
from sandmeshd.runtime.locks import held
from sandmeshd.templates import Template


async def try_out(settings: MeshSettings, templates: Mapping[str, Template], name: str) -> AsyncIterator[Step]:
    """Make sandboxes of one of the templates, whose image is there, on a mesh of their own; give what is tried.

    Raises:
        TemplateBuildFailed: One does not hold; `facts["detail"]` says what was seen.
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
                yield Step(f"trying that {_sentence(requirement)}", number / len(OF_IMAGES))
                await _meet(requirement, subject, templates[name].image or name)
    finally:
        remove(own.paths)


async def _meet(requirement: Requirement, subject: Subject, image: str) -> None:
    try:
        await requirement(subject)
    except (AssertionError, SandmeshError) as error:
        fix = "change what its image is built of, and build it again"
        message = f"the image {image} was built, and that {_sentence(requirement)} does not hold"
        raise TemplateBuildFailed(f"{message}: {error}; {fix}", {"detail": str(error), "fix": fix}) from error


def _sentence(requirement: Requirement) -> str:
    return requirement.__name__.replace("_", " ")
