"""Builds templates: runs their steps in a sandbox of the caller's, and keeps a snapshot of it."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandmeshError
from sandmesh.inputs import Limits, Options
from sandmesh.mesh import MeshAsync
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.builds.catalog import Catalog, CatalogBuild, CatalogTemplate, Origin
from sandmeshd.facades.e2b.builds.images import TemplateImage, build, describe
from sandmeshd.facades.e2b.builds.plan import BuildPlan, Resources
from sandmeshd.facades.e2b.builds.starts import NotReady, run_start
from sandmeshd.facades.e2b.builds.steps import StepFailed, Workbench
from sandmeshd.facades.e2b.builds.uploads import Uploads
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest, find_home, has_root
from sandmeshd.facades.e2b.marks import Marks
from sandmeshd.tenants.shares import Shares

BUILD_SECONDS: Final = 3600
"""How long a build may take; its sandbox ends then, too."""

IDLE_SECONDS: Final = 600.0

KEPT_SECONDS: Final = 3600
"""How long a build that has ended, or was never started, is known."""

MOST: Final = 500
MOST_ENTRIES: Final = 20_000
MOST_LOG_BYTES: Final = 1 << 20
WAITING_SECONDS: Final = 900
"""How long a build may wait for its files and its start."""

LABEL: Final = "e2b-build"

log = structlog.get_logger()


@dataclass(frozen=True)
class Wanted:
    """A build that is requested."""

    template: CatalogTemplate
    tags: list[str]
    resources: Resources
    owner: str
    """Whom it counts for."""


@dataclass
class Pending:
    """A build on its way."""

    build_id: str
    wanted: Wanted
    key: bytes
    """A hash of the key that requested it."""

    status: str = "waiting"
    reason: dict[str, Any] | None = None
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changed: float = field(default_factory=time.monotonic)
    step: str = "base"
    log_bytes: int = 0

    @property
    def template(self) -> CatalogTemplate:
        """The template that it is of."""
        return self.wanted.template

    def note(self, level: str, message: str) -> None:
        """Add an entry to its log."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if len(self.entries) < MOST_ENTRIES and self.log_bytes < MOST_LOG_BYTES:
            self.log_bytes += len(message)
            self.entries.append({"timestamp": moment, "message": message, "level": level, "step": self.step})

    def fail(self, message: str) -> None:
        """End it with a reason."""
        self.note("error", message)
        self.reason = {"message": message, "step": self.step, "logEntries": self.entries[-1:]}
        self.end("error")

    def end(self, status: str) -> None:
        """End it."""
        self.status, self.changed = status, time.monotonic()

    def view(self, offset: int, limit: int) -> dict[str, Any]:
        """Return what clients see of it."""
        view: dict[str, Any] = {
            "templateID": self.template.template_id,
            "buildID": self.build_id,
            "status": self.status,
            "logEntries": self.entries[offset : offset + limit],
            "logs": [],
        }
        return view if self.reason is None else view | {"reason": self.reason}


class Builder:
    """Runs builds, each in the name of its key."""

    def __init__(self, clients: MeshClients, catalog: Catalog, folder: Path, base_image: str = "") -> None:
        self.base_image = base_image
        """What templates from E2B's base start from; empty: the mesh's own."""
        self.uploads = Uploads(folder)
        self._clients = clients
        self._catalog = catalog
        self._pending: dict[str, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._shares = Shares("template builds", MOST)

    async def expect(self, key: str, wanted: Wanted) -> str:
        """Return the id of a build that is to follow.

        Raises:
            ApiError: The owner has too many under way.
            MeshUnavailable: All owners together have.
        """
        await self._forget_some()
        if self._shares.used(wanted.owner) >= self._shares.part:
            await self._forget_oldest(wanted.owner)
        self._shares.take(wanted.owner)
        build_id = str(uuid.uuid4())
        self._pending[build_id] = Pending(build_id, wanted, _digest(key))
        self.uploads.expect(build_id, wanted.owner)
        return build_id

    def pending(self, key: str, template_id: str, build_id: str) -> Pending:
        """Return a build of this key's.

        Raises:
            ApiError: There is none.
        """
        found = self._pending.get(build_id)
        if found is None or found.key != _digest(key) or found.template.template_id != template_id:
            raise ApiError(404, f"build '{build_id}' of template '{template_id}' not found")
        return found

    def latest(self, key: str, template_id: str) -> Pending:
        """Return the last build of a template that waits for its files.

        Raises:
            ApiError: There is none.
        """
        own = (build for build in self._pending.values() if build.key == _digest(key) and build.status == "waiting")
        found = [build for build in own if build.template.template_id == template_id]
        if not found:
            raise ApiError(404, f"template '{template_id}' has no build that waits for files")
        return found[-1]

    def start(self, key: str, pending: Pending, plan: BuildPlan, origin: Origin) -> None:
        """Begin a build.

        Raises:
            ApiError: It was begun before.
        """
        if pending.status != "waiting":
            raise ApiError(409, f"build '{pending.build_id}' was started before: request another")
        pending.status = "building"
        task = asyncio.create_task(self._run(key, pending, plan, origin), name="sandmesh-e2b-build")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Break off all builds."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for build_id in list(self._pending):
            await self.uploads.remove(build_id)

    async def _run(self, key: str, pending: Pending, plan: BuildPlan, origin: Origin) -> None:
        try:
            async with asyncio.timeout(BUILD_SECONDS), self._clients.client(key) as mesh:
                build = await self._build(mesh, key, pending, plan, origin)
                await self._catalog.add(pending.template, build, pending.wanted.tags)
        except (StepFailed, NotReady) as error:
            pending.fail(str(error))
        except SandmeshError as error:
            pending.fail(error.message)
        except TimeoutError:
            pending.fail(f"a build may take {BUILD_SECONDS} s")
        except OSError as error:
            log.warning("a build failed", build_id=pending.build_id, error=str(error))
            pending.fail("the mesh could not read the build's files or keep its names: its log says why")
        else:
            pending.note("info", "built")
            pending.end("ready")
        finally:
            await self.uploads.remove(pending.build_id)

    async def _build(
        self, mesh: MeshAsync, key: str, pending: Pending, plan: BuildPlan, origin: Origin
    ) -> CatalogBuild:
        inherited = origin.build
        environment = dict(inherited.environment) if inherited else {}
        options = _options(pending, origin, environment)
        described: TemplateImage | None = None
        if plan.pulls:
            described = await asyncio.to_thread(describe, plan, self.uploads, pending.build_id)
            options["image"] = (await build(described, self._clients.address, key, pending.note)).reference
        session = await mesh.sessions.connect(f"e2b-build-{pending.build_id}", sandbox_type=origin.template, **options)
        (sandbox_id,) = session.sandboxes.values()
        try:
            info = await mesh.sandboxes.get(sandbox_id)
            marks = _marks(pending, inherited, described)
            async with SandboxAsync(sandbox_id, base_url=self._clients.address, bearer_token=key) as box:
                guest = Guest(box, marks, sandbox_id, await find_home(box, info), has_root(info))
                bench = Workbench(guest, self.uploads, pending.build_id, pending.note)
                if described is not None:
                    await bench.settle(described.environment)
                else:
                    await _run_steps(bench, pending, plan)
                start = plan.start or (inherited.start if inherited else "")
                ready = plan.ready or (inherited.ready if inherited and not plan.start else "")
                if start or ready:
                    own = replace(guest, marks=replace(marks, workdir=bench.workdir, user=bench.user))
                    await _try_start(own, bench, pending, (start, ready))
            snapshot = await mesh.snapshots.create(sandbox_id)
        finally:
            with suppress(NotFound):
                await asyncio.shield(mesh.sandboxes.kill(sandbox_id))
        return CatalogBuild(
            build_id=pending.build_id,
            snapshot_id=snapshot.snapshot_id,
            of_template=True,
            environment=environment | bench.environment,
            workdir=bench.workdir,
            user=bench.user,
            start=start,
            ready=ready,
            cpus=pending.wanted.resources.cpus,
            memory=pending.wanted.resources.memory,
        )

    async def _forget_some(self) -> None:
        now = time.monotonic()
        for build_id, one in list(self._pending.items()):
            kept = WAITING_SECONDS if one.status == "waiting" else KEPT_SECONDS
            if one.status != "building" and now - one.changed > kept:
                await self._forget(build_id)

    async def _forget_oldest(self, owner: str) -> None:
        """Make room by the oldest of an owner's builds that have ended."""
        own = [build for build in self._pending.values() if build.wanted.owner == owner]
        oldest = next((build for build in own if build.status not in ("waiting", "building")), None)
        if oldest is None:
            raise ApiError(429, f"{len(own)} builds are under way: wait for one to end", retry_after=10.0)
        await self._forget(oldest.build_id)

    async def _forget(self, build_id: str) -> None:
        found = self._pending.pop(build_id, None)
        if found is not None:
            self._shares.give(found.wanted.owner)
            await self.uploads.remove(build_id)


async def _run_steps(bench: Workbench, pending: Pending, plan: BuildPlan) -> None:
    for number, step in enumerate(plan.steps, 1):
        pending.step = str(number)
        pending.note("info", f"[{number}/{len(plan.steps)}] {step.kind} {' '.join(step.arguments)[:500]}")
        await bench.run(step)
    pending.step = "finalize"


async def _try_start(guest: Guest, bench: Workbench, pending: Pending, commands: tuple[str, str]) -> None:
    start, ready = commands
    pending.note("info", f"start: {start}"[:500])
    await run_start(guest, pending.build_id, start, ready, bench.environment)


def _marks(pending: Pending, inherited: CatalogBuild | None, described: TemplateImage | None) -> Marks:
    """Return what commands of a build have where they name nothing."""
    found = described or inherited
    name = pending.template.template_id
    return Marks(template=name) if found is None else Marks(template=name, workdir=found.workdir, user=found.user)


def _options(pending: Pending, origin: Origin, environment: dict[str, str]) -> Options:
    options: Options = {"env": environment, "labels": {LABEL: pending.build_id}, "ttl": BUILD_SECONDS + 60.0}
    # Where the door ends in the midst of it, the sandbox would be left.
    options["idle_timeout"] = IDLE_SECONDS
    if origin.snapshot_id:
        options["snapshot"] = origin.snapshot_id
    resources = pending.wanted.resources
    if resources.cpus or resources.memory:
        options["limits"] = Limits(memory=resources.memory, cpus=resources.cpus)
    return options


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
