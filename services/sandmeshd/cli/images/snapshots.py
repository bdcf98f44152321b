"""`sandmesh snapshot push`: a snapshot of a sandbox with an image becomes an image in a registry."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.sandboxes.snapshots import snapshot_commands
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmeshd.images.image import PulledImage
    from sandmeshd.images.store import ImageStore

__all__ = ["snapshot_commands"]


@snapshot_commands.command(epilog="Example: sandmesh snapshot push snap_... registry.example/team/tools:1")
@grouped
def push(
    snapshot_id: Annotated[str, typer.Argument(help="The id that `sandmesh snapshot ls` prints.", metavar="SNAPSHOT")],
    target: Annotated[str, typer.Argument(help="Where it goes: REGISTRY/NAME:TAG.", metavar="TARGET")],
    config: Annotated[
        Path | None, typer.Option("--config", help="A file of settings, as for `up`.", metavar="FILE")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Push the root of a snapshot to a registry, as an image, and print its name there with its digest.

    On the machine of the mesh's node that has the snapshot.
    """
    pushed = run_command(_push(config, snapshot_id, target))
    if output is Format.JSON:
        print_json({"image": pushed})
    else:
        typer.echo(pushed)


async def _push(config: Path | None, snapshot_id: str, target: str) -> str:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.cli.images.stores import progress, store_of  # noqa: PLC0415

    settings = read_settings(config)
    store = store_of(settings)
    with progress() as report:
        image = await image_of(store, settings.paths.node_state, snapshot_id)
        try:
            return await store.push(image, target, progress=report)
        finally:
            await store.remove(image.reference)


async def image_of(store: ImageStore, node_state: Path, snapshot_id: str) -> PulledImage:
    """Make an image of a snapshot of this node: the layers of the one that it began with, and one more.

    Raises:
        SnapshotNotFound, SnapshotDamaged: It is not on this node, or cannot be trusted.
        InvalidArgument: It is not one of an image, or that image is no longer here.
        TooLarge, RuntimeUnavailable: It is larger than images may be, or the disk is full.
    """
    from sandmesh.errors import InvalidArgument  # noqa: PLC0415 - as above
    from sandmeshd.drivers.snapshots.archive import archive_of  # noqa: PLC0415
    from sandmeshd.drivers.snapshots.image_layer import WORKSPACE, write_layer  # noqa: PLC0415
    from sandmeshd.images.builds.folders import build_folder  # noqa: PLC0415
    from sandmeshd.images.builds.layer_file import LayerFile  # noqa: PLC0415
    from sandmeshd.images.reference import BUILT  # noqa: PLC0415
    from sandmeshd.runtime.full_disk import full_disk_explained  # noqa: PLC0415

    found, files = await archive_of(node_state).verified(snapshot_id)
    if not found.image:
        message = f"snapshot {snapshot_id} is not one of an image: only those can be pushed"
        raise InvalidArgument(message, {"field": "snapshot"})
    reference, _, digest = found.image.removesuffix(")").rpartition(" (")
    base = await asyncio.to_thread(store.find, reference)
    if base is None or base.digest != digest:
        fix = f"sandmesh image pull {reference}"
        message = f"the image {reference} ({digest}), which snapshot {snapshot_id} began with, is not here: {fix}"
        raise InvalidArgument(message, {"fix": fix})
    hold = store.hold(base)
    try:
        async with build_folder(store.directory) as folder:
            with full_disk_explained(store.directory), LayerFile(folder / "layer", store.settings.image_bytes) as layer:
                has_workspace = await asyncio.to_thread(write_layer, files, layer)
                made = layer.finish()
            described = store.extension.read_config(base)
            process = dict(described.get("config") or {})
            if has_workspace and process.get("WorkingDir") in (None, "", "/"):
                process["WorkingDir"] = f"/{WORKSPACE}"
            tag = "".join(one if one.isalnum() else "-" for one in snapshot_id)[:100]
            return await store.extend(f"{BUILT}:snapshot-{tag}", base, {**described, "config": process}, made)
    finally:
        os.close(hold)
