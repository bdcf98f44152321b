"""Opens the bubblewrap driver, and removes what a dead mesh left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial

from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.bubblewrap.arguments import SharedView
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Groups
from sandmeshd.drivers.bubblewrap.cgroups.v1 import VersionOne
from sandmeshd.drivers.bubblewrap.cgroups.v2 import VersionTwo
from sandmeshd.drivers.bubblewrap.driver import BubblewrapDriver
from sandmeshd.drivers.bubblewrap.environment import EnvironmentBuilder
from sandmeshd.drivers.bubblewrap.executable import find_bwrap
from sandmeshd.drivers.bubblewrap.host_files import bind_host_files
from sandmeshd.drivers.bubblewrap.identity import UidLeases, release, sandbox_identity
from sandmeshd.drivers.bubblewrap.images.fork_start import ImageForkStarter
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRanges
from sandmeshd.drivers.bubblewrap.images.sandboxes import ImageSandboxes
from sandmeshd.drivers.bubblewrap.images.source import ImageSource
from sandmeshd.drivers.bubblewrap.images.start import ImageExecStarter
from sandmeshd.drivers.bubblewrap.images.zygotes import ImageLauncher
from sandmeshd.drivers.bubblewrap.log_trim import trim_logs
from sandmeshd.drivers.bubblewrap.probe import Probe
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.launcher import BwrapLauncher
from sandmeshd.drivers.bubblewrap.spawns.spares import sweep_spares
from sandmeshd.drivers.bubblewrap.starts.exec_start import ExecStarter
from sandmeshd.drivers.bubblewrap.starts.start_modes import StartModes
from sandmeshd.drivers.bubblewrap.starts.zygote_start import ZygoteStarter
from sandmeshd.drivers.bubblewrap.starts.zygotes import Zygotes
from sandmeshd.drivers.bubblewrap.systems import Systems
from sandmeshd.drivers.bubblewrap.systems.binds import bind_system
from sandmeshd.drivers.bubblewrap.template_builds import TemplateBuilds
from sandmeshd.drivers.decorators.egress_guard import open_egress
from sandmeshd.drivers.egress import Outlet, Resolver
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.drivers.node.images.environment import ImageEnvironments
from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.portable_python.bundle import PortablePython
from sandmeshd.drivers.node.processes import end
from sandmeshd.drivers.node.records import Folder, MeshFolders, discard, finish_removals
from sandmeshd.drivers.node.seccomp import SeccompFilters, build_filters
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import Template, load_templates


@asynccontextmanager
async def open_driver(
    settings: BubblewrapSettings,
    resolver: Resolver | None = None,
    templates: Mapping[str, Template] | None = None,
    outlet: Outlet | None = None,
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that its folders hold are adopted.

    They outlive it, unless `ends_with_driver` says otherwise. `resolver` finds the addresses of what sandboxes want to
    reach, and `outlet` connects to them; by default the system does. Templates may be added while it runs; by default
    they are the shipped ones.

    Raises:
        RuntimeUnavailable: bwrap, libseccomp or an interpreter that sandboxes can read is missing, or the uids for
            sandboxes are somebody's.
    """
    leases = UidLeases(settings)
    view = await open_view(settings)
    filters = await asyncio.to_thread(build_filters)
    agent = await asyncio.to_thread(AgentTree, settings.paths.cache)
    builder = EnvironmentBuilder(settings, view)
    systems = Systems(settings, view.interpreter, view.system)
    known = load_templates() if templates is None else templates
    # A program's private mesh has no administrator who would run the command.
    make_system = partial(build_system, settings) if settings.ends_with_driver else None
    builds = TemplateBuilds(settings.paths, known, builder, agent, systems, make_system)
    groups = await asyncio.to_thread(Groups, settings.paths, (VersionTwo(), VersionOne()), sandbox_identity(settings))
    zygotes = Zygotes(settings, BwrapLauncher(settings, view, filters.agent))
    zygote_starter = ZygoteStarter(settings, zygotes, groups, leases)
    modes = StartModes(settings.way, groups, ExecStarter(settings, view, filters.agent, groups, leases), zygote_starter)
    images = await asyncio.to_thread(_open_images, settings, view, filters, groups)
    driver = BubblewrapDriver(settings, builds, modes, Probe(view, filters.agent), filters.user, images)
    await driver.adopt()
    watching = [asyncio.create_task(driver.watch_places())]
    watching.append(asyncio.create_task(trim_logs(settings.paths.sandboxes)))
    try:
        async with open_egress(driver, settings.paths, settings.egress, resolver, outlet) as guarded:
            yield guarded
    finally:
        for task in watching:
            task.cancel()
        await driver.close()


def _open_images(
    settings: BubblewrapSettings, view: SharedView, filters: SeccompFilters, groups: Groups
) -> ImageSandboxes:
    ranges = IdRanges(settings)
    cache = settings.paths.cache
    environments = ImageEnvironments(cache, PortablePython(cache, view.interpreter))
    zygotes = Zygotes(settings, ImageLauncher(settings, filters.image_agent, ranges, environments))
    started = (settings, filters.image_agent, groups, ranges, environments)
    modes = StartModes(settings.way, groups, ImageExecStarter(*started), ImageForkStarter(*started, zygotes))
    return ImageSandboxes(settings, ImageSource(settings), modes, ranges, filters.image_user)


async def open_view(settings: BubblewrapSettings) -> SharedView:
    """Find what all sandboxes are made from.

    Raises:
        RuntimeUnavailable: bwrap or an interpreter that sandboxes can read is missing.
    """
    interpreter = await asyncio.to_thread(choose_interpreter, settings.reader_uid, settings.python)
    bwrap = await find_bwrap(settings)
    system = (*await bind_system(settings.paths.cache), *bind_host_files(settings.readonly_mounts, settings.reader_uid))
    command = (*sandbox_identity(settings), str(bwrap))
    return SharedView(command, system, interpreter, settings.scratch_bytes)


def has_system(settings: BubblewrapSettings, template: Template) -> bool:
    """Return whether a template needs no system, or one that is there."""
    if not template.system:
        return True
    return Systems(settings, choose_interpreter(settings.reader_uid, settings.python)).find(template.system) is not None


async def build_system(settings: BubblewrapSettings, template: Template) -> AsyncGenerator[BuildStep]:
    """Build a template's system, where it has one and its packages are not there, yielding the progress.

    Raises:
        TemplateBuildFailed: A package cannot be downloaded or unpacked.
        RuntimeUnavailable: This machine has no apt, no bwrap, or no interpreter that sandboxes can read.
        CapabilityMissing: The settings want the host's packages, and it lacks some.
    """
    interpreter = await asyncio.to_thread(choose_interpreter, settings.reader_uid, settings.python)
    bwrap = await find_bwrap(settings)
    async with aclosing(Systems(settings, interpreter).build(template, bwrap)) as steps:
        async for step in steps:
            yield step


async def sweep_state(paths: MeshPaths) -> None:
    """End and remove every sandbox of a mesh, on all its nodes of this machine, that no driver serves any more."""
    for of_node in paths.of_all_nodes():
        folders = MeshFolders(of_node)
        await asyncio.gather(*(_sweep(folder) for folder in folders.all()))
        await sweep_spares(folders)
        await asyncio.to_thread(finish_removals, folders)


async def _sweep(folder: Folder) -> None:
    await end(folder)
    await release(folder)
    await asyncio.to_thread(discard, folder)


PLUGIN = DriverPlugin(BubblewrapSettings, open_driver, sweep_state)
