"""Forks of a sandbox: sandboxes that begin with its files and, where the driver can, with its kernels of Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, DeadlineExceeded, InvalidArgument, SandmeshError, WrongState
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.handle import Attachment, BoxConfig
from sandmesh.sandbox.kernels import Forks
from sandmesh.sandbox.snapshots import read_snapshot, refuses_kernels, take_snapshot

B = TypeVar("B", bound=SandboxAsync)

MOST: Final = 100
_CONCURRENCY: Final = 8
_DELETE_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 3600.0
_Taken: TypeAlias = tuple[sandbox_pb2.CreateSnapshotResponse, list[str]]


@dataclass(frozen=True)
class ForkOrder:
    """How many forks are wanted within so many seconds, and whether with kernels; None: where that is possible."""

    count: int
    timeout: float
    kernels: bool | None


async def fork(
    box: SandboxAsync,
    copied: Callable[[BoxConfig], B],
    config: BoxConfig,
    attachment: Attachment,
    order: ForkOrder,
) -> Forks[B]:
    """Fork a sandbox into at most so many others, each open; `copied` makes a box that is not started.

    Raises:
        SandmeshError: No fork could be created; nothing is left behind.
    """
    count, timeout = order.count, order.timeout
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"count is {count!r}: it is a whole number from 1 to {MOST}", {"field": "count"})
    spec = spec_of_fork(config, attachment.record)
    kernels, others = await _state(box, spec)
    taken, not_copied = await _or_deleted(box, asyncio.create_task(_take(attachment, config.timeout, order)))
    not_copied += [f"kernel {name}: its variables" for name in kernels if name not in taken.kernels] + others
    snapshot = read_snapshot(taken.snapshot)
    spec.snapshot_id = snapshot.snapshot_id
    forks = [copied(replace(config, sandbox_id=None, spec=spec)) for _ in range(count)]
    try:
        try:
            made, error = await _make(forks, timeout)
        finally:
            await asyncio.shield(box.delete_snapshot(snapshot))
    except BaseException:
        # Cancelled, or failed to delete the snapshot, after the forks had started: the caller never receives them.
        await asyncio.shield(_close(forks))
        raise
    if not made and error is not None:
        raise error
    return Forks(made, error, not_copied)


def spec_of_fork(config: BoxConfig, record: sandbox_pb2.Sandbox) -> sandbox_pb2.SandboxSpec:
    """Return what a fork is to be: as the sandbox was requested, or as its record says where another box created it."""
    spec = sandbox_pb2.SandboxSpec()
    spec.CopyFrom(config.spec if config.sandbox_id is None else record.spec)
    if spec.workspace_dir:
        message = "the workspace is a directory of the host, which its forks would share: copy what they need instead"
        raise WrongState(message, {"state": "SHARED"})
    if config.sandbox_id is not None:
        for variable, secret in spec.secrets.items():
            spec.environment.pop(variable, None)
            if not secret.name:
                message = f"only the box that created the sandbox has the value of its secret {variable}: fork that one"
                raise WrongState(message, {"state": "SECRET"})
            secret.placeholder = secret.user_id = ""
        spec.volumes_owner = ""
    spec.browser_profile = ""
    return spec


async def take_files(box: SandboxAsync, attachment: Attachment, timeout: float) -> str:
    """Take a snapshot without kernels and return its id; when this is cancelled, it is deleted."""
    taking = asyncio.create_task(_take(attachment, timeout, ForkOrder(1, timeout, kernels=False)))
    taken, _ = await _or_deleted(box, taking)
    return taken.snapshot.snapshot_id


async def _or_deleted(box: SandboxAsync, taking: asyncio.Task[_Taken]) -> _Taken:
    """Wait for a snapshot. The mesh completes one also when this is cancelled: that one is deleted then."""

    async def delete() -> None:
        with suppress(SandmeshError):
            taken, _ = await taking
            await box.delete_snapshot(taken.snapshot.snapshot_id)

    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.wait([asyncio.create_task(delete())], timeout=_DELETE_SECONDS)
        raise


async def _take(attachment: Attachment, timeout: float, order: ForkOrder) -> _Taken:
    """Take the snapshot that the forks begin with; return with it what is not in it, and why.

    Raises:
        CapabilityMissing, WrongState: The kernels are wanted, and cannot be copied.
    """
    # Where this program is killed, nothing else deletes it.
    ttl = min(order.timeout + _DELETE_SECONDS, _LONGEST_SECONDS)
    if order.kernels is False:
        return await take_snapshot(attachment, timeout, ttl=ttl), []
    try:
        taken = await take_snapshot(attachment, timeout, kernels_timeout=order.timeout, ttl=ttl)
    except (CapabilityMissing, WrongState) as error:
        if order.kernels or not refuses_kernels(error):
            raise
        return await take_snapshot(attachment, timeout, ttl=ttl), [f"kernels: {error.message}"]
    return taken, list(taken.not_copied)


async def _state(box: SandboxAsync, spec: sandbox_pb2.SandboxSpec) -> tuple[list[str], list[str]]:
    """Return the ids of the sandbox's kernels, and the names of what else it has and its forks lack."""
    kernels = [kernel.kernel_id for kernel in await box.kernels.list()]
    names = [f"process {process.pid}: {process.command}" for process in await box.processes.list() if process.pid]
    if spec.volumes:
        names.append("volumes, which all of them share")
    return kernels, names


async def _make(forks: list[B], timeout: float) -> tuple[list[B], SandmeshError | None]:
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def start(fork: B) -> None:
        async with slots:
            await fork.start()

    tasks = [asyncio.create_task(start(one)) for one in forks]
    try:
        await asyncio.wait(tasks, timeout=timeout)
    except asyncio.CancelledError:
        await asyncio.shield(_end(forks, tasks))
        raise
    late = [task for task in tasks if not task.done()]
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    for failure in failures:
        if not isinstance(failure, SandmeshError):
            await _end(forks, tasks)
            raise failure
    error = next((known for known in failures if isinstance(known, SandmeshError)), None)
    if error is None and late:
        error = DeadlineExceeded(f"{len(late)} of {len(forks)} forks were not ready within {timeout:g} s", changed=True)
    return [one for one, task in zip(forks, tasks, strict=True) if not task.cancelled() and not task.exception()], error


async def _end(forks: list[B], tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _close(forks)


async def _close(forks: list[B]) -> None:
    for fork in forks:
        with suppress(SandmeshError):  # Its lease ends it then.
            await fork.close()
