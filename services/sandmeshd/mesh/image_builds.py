"""Builds images on this machine, without an engine."""

from __future__ import annotations

from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_runner
from sandmeshd.images.builds.builder import DockerfileBuilder
from sandmeshd.images.builds.options import ImageBuildOptions, Report, Totals
from sandmeshd.images.image import PulledImage
from sandmeshd.images.store import ImageStore
from sandmeshd.mesh.driver import settings_for
from sandmeshd.mesh.settings import MeshSettings


async def build_image(
    settings: MeshSettings, name: str, options: ImageBuildOptions, report: Report
) -> tuple[PulledImage, Totals]:
    """Build an image in the store that the settings name, by sandboxes of bubblewrap, whatever the mesh's driver.

    Raises:
        InvalidArgument, TemplateBuildFailed, PermissionDenied, RuntimeUnavailable, TooLarge, CapabilityMissing: As
            `DockerfileBuilder.build`.
    """
    own = settings_for(settings, "bubblewrap", BubblewrapSettings)
    store = ImageStore(settings.image_store, settings.state_directory / "images")
    async with open_runner(own) as runner:
        builder = DockerfileBuilder(store=store, runner=runner, options=options, report=report)
        return await builder.build(name), builder.totals
